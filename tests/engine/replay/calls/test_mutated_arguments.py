"""Calls that write to their arguments are judged by the arguments' own memory, whatever they return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from msprobe_standards import Policy
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.judging.run_outputs import produced
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.engine.values.pytree import map_tensors
from pytest_msprobe.engine.values.strides import around, overlaps
from pytest_msprobe.results.outcomes import Breakdown
from pytest_msprobe.results.result import DirectionResult
from tests.support.replays.devices import Altered
from tests.support.replays.functions import check_function

Alter = Callable[[Any, Any, Any], Any]


def x(*shape: int) -> torch.Tensor:
    return torch.randn(shape).requires_grad_()


def values(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


def written_elsewhere(func: Any, args: Any, kwargs: Any) -> Any:
    """Return what the call returns, computed in memory of its own."""
    return func(*map_tensors(torch.clone, args), **map_tensors(torch.clone, kwargs))


def returned_as_a_copy(func: Any, args: Any, kwargs: Any) -> Any:
    """Write what is right, and return it in other memory."""
    return map_tensors(torch.clone, func(*args, **kwargs))


IN_PLACE = {
    "a name with an underscore": lambda recorder: recorder.Tensor.add_(values(3, 4), x(3, 4)),
    "an operator": lambda recorder: recorder.Tensor["__imul__"](values(3, 4), 2.5),
    "inplace by position": lambda recorder: recorder.Functional.relu(values(3, 4), True),
    "inplace by name": lambda recorder: recorder.Functional.leaky_relu(values(3, 4), inplace=True),
    "out": lambda recorder: recorder.Torch.mul(values(3, 4), 2.5, out=torch.zeros(3, 4)),
    "several out": lambda recorder: recorder.Torch.max(values(3, 4), 1, out=[torch.zeros(3), torch.zeros(3).long()]),
    "a copy": lambda recorder: recorder.Tensor.copy_(values(3, 4), values(3, 4)),
    "many tensors": lambda recorder: recorder.Torch._foreach_mul_([values(3), values(4)], 2.5),
    "an assignment": lambda recorder: recorder.Tensor["__setitem__"](values(3, 4), 1, 5.0),
    "statistics": lambda recorder: recorder.Functional.batch_norm(x(5, 3), values(3), torch.ones(3), None, None, True),
    "a random fill": lambda recorder: recorder.Tensor.uniform_(values(30, 40), 2.0, 3.0),
    "dropout by position": lambda recorder: recorder.Functional.dropout(values(30, 40), 0.5, True, True),
}  # fmt: skip


@pytest.mark.parametrize("make", IN_PLACE.values(), ids=IN_PLACE.keys())
def test_memory_that_stays_as_it_was_fails_though_the_returned_tensor_is_right(
    make: Any, recorder: Any, check: Any, device_that: Any
) -> None:
    call = make(recorder)
    assert check(call).forward.outcome == "pass"
    wrong = check(call, device=device_that(written_elsewhere)).forward
    assert wrong.outcome == "fail"
    assert {output.path.partition(".")[0] for output in wrong.outputs if output.verdict.outcome == "fail"} == {
        "changed"
    }


@pytest.mark.parametrize("make", IN_PLACE.values(), ids=IN_PLACE.keys())
def test_memory_that_is_right_passes_where_a_copy_of_it_is_returned(
    make: Any, recorder: Any, check: Any, device_that: Any
) -> None:
    assert check(make(recorder), device=device_that(returned_as_a_copy)).forward.outcome == "pass"


def test_an_argument_that_is_returned_is_judged_once(recorder: Any, check: Any, device_that: Any) -> None:
    def wrong(func: Any, args: Any, kwargs: Any) -> Any:
        return func(*args, **kwargs).data.mul_(1.5)

    result = check(recorder.Tensor.add_(values(3, 4), x(3, 4)), device=device_that(wrong)).forward
    assert [(output.path, output.verdict.outcome) for output in result.outputs] == [("output.0", "fail")]


def test_an_argument_that_is_returned_untouched_is_wrong_once(recorder: Any, check: Any, device_that: Any) -> None:
    call = recorder.Tensor.add_(values(3, 4), x(3, 4))
    result = check(call, device=device_that(lambda func, args, kwargs: args[0])).forward
    assert [(output.path, output.verdict.outcome) for output in result.outputs] == [("output.0", "fail")]


def test_a_function_that_overwrites_its_input_unasked_fails(recorder: Any, check: Any, device_that: Any) -> None:
    call = recorder.Functional.relu(values(3, 4))
    result = check(call, device=device_that(lambda func, args, kwargs: args[0].relu_())).forward
    assert (result.outcome, result.deciding.path) == ("fail", "changed.args.0")


def test_a_golden_definition_may_return_what_the_function_writes(default_policy: Policy) -> None:
    results = check_function(
        torch.Tensor.relu_, [values(3, 4)], {}, name="f", golden=lambda given: given.clamp(min=0),
        setup=ReplayConfig(CpuDevice(), default_policy, TorchFramework()),
    )  # fmt: skip
    assert results[0].outcome == "pass"


def test_wrong_memory_is_kept_with_a_failing_case(recorder: Any, default_policy: Policy) -> None:
    call = recorder.Tensor.mul_(values(2, 3), 2.0)
    replay = Replay(call, ReplayConfig(Altered(written_elsewhere), default_policy, TorchFramework()))
    replay.forward()
    target, golden = (produced(replay.trial, "forward")[side]["changed"]["args.0"] for side in ("target", "golden"))
    torch.testing.assert_close(golden, 2.0 * target.double())


# Where the argument's memory lies: what of it is the argument, and what is not.
LAYOUTS = {
    "every other column": lambda: torch.randn(4, 6)[:, ::2],
    "transposed": lambda: torch.randn(4, 6).T,
    "rows of something wider": lambda: torch.randn(4, 6)[:, 1:4],
    "channels last": lambda: torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "a diagonal": lambda: torch.randn(5, 5).diagonal(),
}
GAPS = [name for name in LAYOUTS if name not in ("transposed", "channels last")]


def added(policy: Policy, argument: torch.Tensor, alter: Alter | None = None) -> list[DirectionResult]:
    """Judge the addition of a number in place, and its gradient where one is wanted."""
    device = CpuDevice() if alter is None else Altered(alter)
    setup = ReplayConfig(device, policy, TorchFramework())
    return check_function(
        torch.Tensor.add_, [argument, 1.0], {}, name="f", setup=setup, backward=argument.requires_grad
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_memory_is_judged_whatever_its_layout(default_policy: Policy, layout: str) -> None:
    argument = LAYOUTS[layout]()
    strides: list[tuple[int, ...]] = []

    def noted(func: Any, args: Any, kwargs: Any) -> Any:
        strides.append(args[0].stride())
        return func(*args, **kwargs)

    for wanted in (False, True):
        results = added(default_policy, argument.requires_grad_(wanted), noted)
        assert [result.outcome for result in results] == ["pass"] * (1 + wanted)
        assert added(default_policy, argument, written_elsewhere)[0].outcome == "fail"
    assert strides == [argument.stride()] * 2


@pytest.mark.parametrize("layout", GAPS)
@pytest.mark.parametrize("wanted", [False, True])
def test_a_kernel_that_clobbers_what_lies_in_between_fails(default_policy: Policy, layout: str, wanted: bool) -> None:
    def clobber(func: Any, args: Any, kwargs: Any) -> Any:
        output = func(*args, **kwargs)
        tensor = args[0].detach()
        # What comes after the first row, or between its first two elements.
        gap = tensor.storage_offset() + (tensor.size(-1) if tensor.stride(-1) == 1 else 1)
        tensor.as_strided((1,), (1,), gap).fill_(77.0)
        return output

    argument = LAYOUTS[layout]().requires_grad_(wanted)
    assert {result.outcome for result in added(default_policy, argument)} == {"pass"}
    wrong = added(default_policy, argument, clobber)[0]
    assert (wrong.outcome, wrong.deciding and wrong.deciding.path) == ("fail", "changed.args.0.around")


def test_a_check_that_writes_to_elements_which_share_memory_fails(default_policy: Policy) -> None:
    (windows,) = added(default_policy, torch.randn(6).as_strided((3, 3), (1, 1)))
    assert (windows.outcome, windows.breakdown) == ("fail", Breakdown.TEST)
    assert "it writes to args.0, whose elements share memory" in windows.reason
    (expanded,) = added(default_policy, torch.randn(1, 3).expand(4, 3))
    assert (expanded.outcome, expanded.breakdown) == ("fail", Breakdown.TEST)
    assert "golden raised on the CPU: RuntimeError" in expanded.reason


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3).flatmap(
        lambda shape: st.tuples(st.just(shape), st.lists(st.integers(0, 6), min_size=len(shape), max_size=len(shape)))
    )
)
def test_memory_is_the_elements_and_what_lies_around_them(layout: tuple[list[int], list[int]]) -> None:
    shape, stride = layout
    memory = torch.arange(64)
    tensor = memory.as_strided(shape, stride, 2)
    own = tensor.reshape(-1).tolist()
    others = around(tensor, torch.clone).tolist()
    assert sorted({*own, *others}) == list(range(2, max(own) + 1))
    assert not set(own) & set(others)
    # Whatever shares memory is known; what is called shared may happen not to be.
    assert overlaps(tensor) or len(set(own)) == len(own)
