"""Of several writers to one place any may win, and nothing else is right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.engine.replay.ops.op_info import op_info
from pytest_msprobe.engine.replay.ops.several_writers import accept_gradient_of_winner
from tests.support.dumps.recorded_calls import recorded_call

INDEX = torch.tensor([3, 0, 3, 3, 1])
VALUES = torch.tensor([10.0, 20.0, 30.0, 40.0, 50.0])
ROWS = VALUES[:, None] + torch.tensor([0.0, 1.0])


def flipped(*places: int) -> Callable[[Any, Any, Any], Any]:
    """Return a device on which the first writer wins: arguments at these places come in the opposite order."""

    def call(func: Any, args: Any, kwargs: Any) -> Any:
        changed = [_flipped(arg) if i in places else arg for i, arg in enumerate(args)]
        return func(*changed, **kwargs)

    return call


def _flipped(arg: Any) -> Any:
    return [part.flip(0) for part in arg] if isinstance(arg, (list, tuple)) else arg.flip(0)


def _set(x: torch.Tensor) -> None:
    x[INDEX] = VALUES


CALLS = {
    "index_put": (lambda: torch.index_put(torch.zeros(5), [INDEX], VALUES), flipped(1, 2)),
    "index_put_ rows": (lambda: torch.zeros(5, 2).index_put_([INDEX], ROWS), flipped(1, 2)),
    "__setitem__": (lambda: _set(torch.zeros(5)), flipped(1, 2)),
    "scatter": (lambda: torch.scatter(torch.zeros(5), 0, INDEX, VALUES), flipped(2, 3)),
    "scatter_ of more": (
        lambda: torch.zeros(5, 3).scatter_(0, INDEX[:, None], ROWS),
        lambda func, args, kwargs: func(*args[:2], args[2].flip(0), args[3].flip(0)),
    ),
    "index_copy": (lambda: torch.index_copy(torch.zeros(5, 2), 0, INDEX, ROWS), flipped(2, 3)),
    "index_copy_ of columns": (
        lambda: torch.zeros(2, 5).index_copy_(1, INDEX, ROWS.T.contiguous()),
        lambda func, args, kwargs: func(*args[:2], args[2].flip(0), args[3].flip(1)),
    ),
    "put_": (lambda: torch.zeros(5).put_(INDEX - 5, VALUES), flipped(1, 2)),
    "max_unpool1d": (
        lambda: F.max_unpool1d(VALUES.view(1, 1, 5), INDEX.view(1, 1, 5), 2),
        lambda func, args, kwargs: func(args[0].flip(-1), args[1].flip(-1), *args[2:], **kwargs),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_another_writer_may_win(tmp_path: Path, check: Any, device_that: Any, name: str) -> None:
    program, other = CALLS[name]
    assert check(recorded_call(tmp_path, program), device=device_that(other)).forward.verdict.outcome == "pass"


def test_another_writer_may_win_where_the_values_are_drawn(recorder: Any, check: Any, device_that: Any) -> None:
    index = torch.randint(0, 4, (50,))
    dump = recorder.Torch.scatter(torch.zeros(4), 0, index, torch.randn(50))
    assert check(dump, device=device_that(flipped(2, 3))).forward.verdict.outcome == "pass"


@pytest.mark.parametrize("name", CALLS)
def test_what_no_writer_wrote_fails(tmp_path: Path, check: Any, device_that: Any, name: str) -> None:
    def wrong(func: Any, args: Any, kwargs: Any) -> Any:
        found = func(*args, **kwargs)
        (args[0] if found is None else found).view(-1)[3] += 5.0
        return found

    assert check(recorded_call(tmp_path, CALLS[name][0]), device=device_that(wrong)).forward.verdict.outcome == "fail"


def test_a_place_with_one_writer_holds_its_value(tmp_path: Path, check: Any, device_that: Any) -> None:
    def wrong(func: Any, args: Any, kwargs: Any) -> Any:
        found = func(*args, **kwargs)
        found[1] = 20.0
        return found

    call = recorded_call(tmp_path, CALLS["scatter"][0])
    assert check(call, device=device_that(wrong)).forward.verdict.outcome == "fail"


@pytest.mark.parametrize(
    ("gradient", "is_right"),
    [
        ([0.0, 2, 0, 7, 3], True),
        ([7.0, 2, 7, 7, 3], True),
        ([7.0, 2, 0, 7, 3], False),
        ([0.0, 2, 0, 0, 3], False),
        ([0.0, 0, 0, 7, 3], False),
    ],
)
def test_the_gradient_of_the_values_reaches_all_writers_or_one(gradient: list[float], is_right: bool) -> None:
    golden = {"args.2": torch.tensor([7.0, 2, 7, 7, 3])}
    target = {"args.2": torch.tensor(gradient)}
    arguments = ((torch.zeros(5), (INDEX,), VALUES), {})
    accept_gradient_of_winner(op_info("__setitem__").writers, arguments, target, golden)
    assert torch.equal(target["args.2"], golden["args.2"]) is is_right


@pytest.mark.parametrize("api", ["sort", "argsort"])
@pytest.mark.parametrize(("options", "outcome"), [({"stable": True}, "fail"), ({}, "pass")])
def test_a_stable_sort_keeps_the_order_of_ties(
    tmp_path: Path, check: Any, api: str, options: dict[str, bool], outcome: str
) -> None:
    class Reversing(SimDevice):
        name = "reversing"

        def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
            flipped, last = func(args[0].flip(0), **kwargs), len(args[0]) - 1
            return (flipped[0], last - flipped[1]) if api == "sort" else last - flipped

    ties = torch.tensor([1.0, 0.0, 1.0, 0.0, 2.0])
    call = recorded_call(tmp_path, lambda: getattr(torch, api)(ties, **options))
    assert check(call, device=Reversing()).forward.verdict.outcome == outcome


@pytest.mark.parametrize(("value", "index", "outcome"), [(5.0, 3, "pass"), (7.0, 4, "fail"), (5.0, 4, "fail")])
def test_any_of_the_most_frequent_values_is_the_mode(
    tmp_path: Path, check: Any, device_that: Any, value: float, index: int, outcome: str
) -> None:
    device = device_that(lambda *_: (torch.tensor(value), torch.tensor(index)))
    call = recorded_call(tmp_path, lambda: torch.mode(torch.tensor([1.0, 1.0, 5.0, 5.0, 7.0])))
    assert check(call, device=device).forward.verdict.outcome == outcome
