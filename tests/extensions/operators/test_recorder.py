"""Dumps of operators: each call and its gradient, and what was not recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from msprobe_hooks.dump.reader import Dump, read_dump
from msprobe_hooks.dump.recording_paths import find_dumps
from pytest_msprobe import check_dump
from pytest_msprobe.errors import CommandError
from pytest_msprobe.extensions.operators.database import Operator, Sample
from pytest_msprobe.extensions.operators.recorder import record_operators
from pytest_msprobe.extensions.operators.sweep import Sweep, read_sweep


def operator(name: str, function: Callable[..., Any], *args: Any, dtypes: Iterable[str] = ("float32",)) -> Operator:
    """Return an operator with one sample, of a tensor and more arguments."""

    def samples(dtype: torch.dtype) -> list[Sample]:
        return [Sample((torch.linspace(0.1, 0.9, 6, dtype=dtype, requires_grad=True), *args))]

    return Operator(name, function, samples, tuple(dtypes))


def recorded(folder: Path, *operators: Operator) -> tuple[Dump, Sweep]:
    sweep = record_operators(folder, operators, "float32", "tensor", 4)
    return read_dump(find_dumps(folder)[0]), sweep


def test_a_call_and_its_gradient_are_recorded(tmp_path: Path) -> None:
    dump, sweep = recorded(tmp_path, operator("tanh", torch.tanh))
    assert dump.api_names == ["Torch.tanh.0.forward", "Torch.tanh.0.backward"]
    assert sweep.operators["tanh"].calls == 1
    assert str(sweep) == "1 calls of 1 operators in float32, 0 refused by torch"


def test_an_operator_that_recordings_do_not_list_is_recorded_as_a_whole_and_judged(tmp_path: Path) -> None:
    name = "special.hermite_polynomial_h"
    dump, sweep = recorded(tmp_path, operator(name, torch.special.hermite_polynomial_h, 2))
    assert dump.api_names == [f"Torch.{name}.0.forward"]
    assert list(sweep.left_out()) == []
    assert [checked.outcome for checked in check_dump(dump.path, device="cpu")] == ["pass"]


def test_an_operator_of_a_library_is_recorded_by_its_name(tmp_path: Path) -> None:
    dump, _ = recorded(tmp_path, operator("aten::_safe_softmax", torch.ops.aten._safe_softmax, 0))
    assert dump.api_names[0] == "torch.ops.aten._safe_softmax.0.forward"
    assert {checked.outcome for checked in check_dump(dump.path, device="cpu")} == {"pass"}


def test_a_sample_that_raises_is_counted_with_what_torch_said_and_is_not_the_end(tmp_path: Path) -> None:
    def refused(*args: Any) -> Any:
        raise NotImplementedError("no kernel\nfor this")

    dump, sweep = recorded(tmp_path, operator("refused", refused), operator("tanh", torch.tanh))
    assert dump.api_names == ["Torch.tanh.0.forward", "Torch.tanh.0.backward"]
    assert list(sweep.left_out()) == [("refused", "NotImplementedError: no kernel")]


def test_samples_that_cannot_be_drawn_are_one_reason_and_not_the_end(tmp_path: Path) -> None:
    def samples(dtype: torch.dtype) -> list[Sample]:
        raise AssertionError("only on another device")

    broken = Operator("broken", torch.abs, samples, ("float32",))
    _, sweep = recorded(tmp_path, broken, operator("tanh", torch.tanh))
    assert list(sweep.left_out()) == [("broken", "AssertionError: only on another device")]


def test_a_view_has_a_reason_and_no_record(tmp_path: Path) -> None:
    _, sweep = recorded(tmp_path, operator("T", lambda x: x.T), operator("tanh", torch.tanh))
    ((name, why),) = sweep.left_out()
    assert name == "T"
    assert "a view" in why


def test_operators_without_the_dtype_are_no_part_of_the_sweep(tmp_path: Path) -> None:
    _, sweep = recorded(tmp_path, operator("tanh", torch.tanh), operator("abs", torch.abs, dtypes=["int64"]))
    assert list(sweep.operators) == ["tanh"]


def test_an_operator_that_is_only_listed_has_its_reason_and_is_not_called(tmp_path: Path) -> None:
    listed = Operator("rand", torch.rand, lambda dtype: [], ["float32"], why_not="it draws random numbers")
    _, sweep = recorded(tmp_path, listed, operator("tanh", torch.tanh))
    assert list(sweep.left_out()) == [("rand", "it draws random numbers")]
    assert str(sweep) == "1 calls of 1 operators in float32, 0 refused by torch"


def test_operators_of_two_frameworks_are_no_one_dump(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"^operators of mindspore and torch: a dump is of one; record each alone$"):
        recorded(tmp_path, operator("tanh", torch.tanh), operator("mindspore.mint.tanh", torch.tanh))


def test_what_was_recorded_is_read_from_the_dumps_folder(tmp_path: Path) -> None:
    dump, sweep = recorded(tmp_path, operator("tanh", torch.tanh))
    assert read_sweep(dump.path) == sweep
    assert read_sweep(tmp_path.parent / "elsewhere" / "dump.json") is None


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_two_recordings_of_the_same_operators_are_the_same(tmp_path: Path, task: Any) -> None:
    texts = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        record_operators(folder, [operator("dropout", torch.dropout, 0.5, True)], "float32", task, 4)
        dump = find_dumps(folder)[0]
        texts.append(dump.read_text().replace(str(folder), ""))
    assert texts[0] == texts[1]
