"""A device gets the tensors of a recorded call in memory as it was; golden computes on contiguous ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._pytree import tree_map

from msprobe_hooks.dump.memory_layouts import Layout, span
from msprobe_standards import Policy
from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.engine.replay.calls.laid_out_tensors import lay_out_all
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.engine.values.pytree import tensors_with_paths
from pytest_msprobe.engine.values.strides import filling, memory_size, outside, overlaps, whole_memory
from tests.engine.replay.memory.strided_faults import WritingAround
from tests.support.dumps.dump_files import forward, tensor, value

TASKS = pytest.mark.parametrize("task", ["statistics", "tensor"])


class Seen(SimDevice):
    """Remembers the tensors that it is given, by the direction of a record and their path."""

    name = "seen"

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.calls = 0

    def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
        self.calls += 1
        direction = record.rpartition(".")[2]
        given = {"args": list(args), "kwargs": dict(kwargs)}
        self.tensors |= {f"{direction} {path}": each for path, each in tensors_with_paths(given)}
        return func(*args, **kwargs)


def x(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(shape).requires_grad_()


@TASKS
def test_strides_and_offset_are_those_that_were_recorded(task: str, recorded: Any, check: Any) -> None:
    device = Seen()
    call = recorded(lambda: F.softmax(x(8, 30)[2:, 3:13].t(), -1), "softmax", task)
    assert check(call, device=device).forward.outcome == "pass"
    seen = device.tensors["forward args.0"]
    assert seen.stride() == (1, 30)
    # 63 elements of 4 bytes, modulo 64 bytes, and not 0.
    assert seen.storage_offset() == 63 % 16 + 16
    assert memory_size(seen) > seen.storage_offset() + span(seen.shape, seen.stride())


def test_arriving_gradients_lie_as_they_came_in_training(recorded: Any, check: Any) -> None:
    device = Seen()
    call = recorded(lambda: (torch.tanh(leaf(6, 8)).t() * x(8, 6)).sum(0).sum().backward(), "tanh")
    assert check(call, device=device).backward.outcome == "pass"
    assert device.tensors["backward args.1.0"].stride() == (1, 6)


def test_elements_that_share_a_place_have_one_value_for_golden_too(recorded: Any, check: Any) -> None:
    device = Seen()
    call = recorded(lambda: torch.tanh(x(6, 1).expand(6, 50)), "tanh")
    assert check(call, device=device).forward.outcome == "pass"
    assert device.tensors["forward args.0"].stride() == (1, 0)


@pytest.mark.parametrize(
    ("program", "api"),
    [
        (lambda a: a.mul_(a), "mul_"),
        (lambda a: torch.add(a, 1, out=a), "add"),
        (lambda a: torch.mul(a, a.t(), out=torch.empty(4, 4)), "mul"),
        (lambda a: torch.cat([a, a[1:]]), "cat"),
        (lambda a: a[:2].add_(a[2:]), "add_"),
        (lambda a: a.copy_(a), "copy_"),
        (lambda a: torch._foreach_mul_(list(a.unbind(0)), 2.0), "_foreach_mul_"),
        (lambda a: F.scaled_dot_product_attention(a[None], a[None], a[None]), "scaled_dot_product_attention"),
    ],
)
@TASKS
def test_arguments_that_share_memory_share_it_on_the_device(
    program: Any, api: str, task: str, recorded: Any, check: Any
) -> None:
    device = Seen()
    result = check(recorded(lambda: program(x(4, 4)), api, task), device=device).forward
    assert result.outcome == "pass"
    storages = {each.untyped_storage().data_ptr() for each in device.tensors.values() if each.numel()}
    assert len(storages) == (2 if api == "mul" else 1)


def test_gradients_pass_to_arguments_that_share_memory_and_are_written_to(recorded: Any, check: Any) -> None:
    def program() -> None:
        y = leaf(6, 8) * 1.0
        y.add_(y.detach())
        y.sum().backward()

    result = check(recorded(program, "add_"))
    assert (result.forward.outcome, result.backward.outcome) == ("pass", "pass")


def test_what_a_call_writes_next_to_its_argument_in_a_shared_storage_fails(recorded: Any, check: Any) -> None:
    def program() -> None:
        a, b = x(6, 8).chunk(2, 1)
        a.mul_(b)

    call = recorded(program, "mul_")
    assert check(call).forward.outcome == "pass"
    wrong = check(call, device=WritingAround()).forward
    assert [each.path for each in wrong.outputs if each.verdict.outcome == "fail"] == ["changed.args.0.around"]


def test_golden_computes_on_contiguous_tensors(recorded: Any, default_policy: Policy) -> None:
    replay = Replay(
        recorded(lambda: x(8, 6).t().add_(1.0), "add_"), ReplayConfig(Seen(), default_policy, TorchFramework())
    )
    assert replay.forward().outcome == "pass"
    assert replay.trial.golden.arguments["args.0"].is_contiguous()
    assert not replay.trial.target.arguments["args.0"].is_contiguous()


def test_golden_has_the_memory_of_the_device_where_a_call_reads_how_it_lies(recorder: Any, check: Any) -> None:
    device = Seen()
    given = tensor(4, 6) | {"stride": [1, 5], "storage_offset": 2, "storage_size": 40}
    call = recorder.keep("Tensor.as_strided.0", forward(given, [value(3), value(3)], [value(2), value(7)]))
    assert check(call, device=device).forward.outcome == "pass"
    assert (device.tensors["forward args.0"].stride(), memory_size(device.tensors["forward args.0"])) == ((1, 5), 40)


@pytest.mark.parametrize(
    "program",
    [lambda: x(4, 5000)[::2, ::1000].view(2, 5, 1), lambda: x(2, 3, 4, 4).permute(0, 2, 3, 1)[0].view(16, 3)],
)
def test_a_view_of_what_is_not_contiguous_passes(program: Any, recorded: Any, check: Any) -> None:
    assert check(recorded(program, "view")).forward.outcome == "pass"


def test_contiguous_memory_can_be_asked_for(recorded: Any, check: Any) -> None:
    device = Seen()
    call = recorded(lambda: torch.add(x(8, 6).t(), x(6, 1).expand(6, 8)), "add")
    assert check(call, device=device, memory="contiguous").forward.outcome == "pass"
    assert all(each.is_contiguous() for each in device.tensors.values())


def test_a_fault_that_needs_no_layout_is_said_to_need_none(recorded: Any, check: Any, device_that: Any) -> None:
    call = recorded(lambda: torch.tanh(x(8, 6).t()), "tanh")
    wrong = check(call, device=device_that(lambda func, args, kwargs: func(*args, **kwargs) + 1)).forward
    assert wrong.outcome == "fail"
    assert wrong.reason.endswith("; with contiguous inputs too")


def test_a_kernel_that_refuses_a_layout_fails_only_with_it(recorded: Any, check: Any, device_that: Any) -> None:
    def refuses(func: Any, args: Any, kwargs: Any) -> Any:
        if not args[0].is_contiguous():
            raise RuntimeError("input must be contiguous")
        return func(*args, **kwargs)

    wrong = check(recorded(lambda: torch.tanh(x(8, 6).t()), "tanh"), device=device_that(refuses)).forward
    assert wrong.reason.endswith("input must be contiguous; only with stride (1, 6) of args.0")


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_an_error_that_comes_once_is_not_blamed_on_a_layout(direction: str, recorded: Any, check: Any) -> None:
    class Once(SimDevice):
        name = "once"
        runs = 0

        def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
            result = super().call(func, args, kwargs, record=record)
            if not record.endswith(direction):
                return result
            self.runs += 1
            return tree_map(lambda tensor: tensor + 1, result) if self.runs == 1 else result

    call = recorded(lambda: torch.tanh(leaf(8, 6).t()).t().sum().backward(), "tanh")
    wrong = getattr(check(call, device=Once()), direction)
    assert wrong.outcome == "fail"
    assert wrong.reason.endswith("; passed when run again")
    assert "only with" not in wrong.reason


def test_what_passes_runs_once(recorded: Any, check: Any) -> None:
    device = Seen()
    check(recorded(lambda: torch.tanh(x(8, 6).t()), "tanh"), device=device)
    assert device.calls == 1


def test_a_layout_that_does_not_fit_its_tensor_is_left_out() -> None:
    found = lay_out_all({"args.0": x(4, 6)}, {"args.0": Layout((1,))})
    assert not found.tensors


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.lists(st.integers(0, 5000), min_size=3, max_size=3),
    st.integers(0, 200),
    st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float8_e5m2]),
)
def test_values_stay_and_gaps_are_short(shape: list[int], steps: list[int], offset: int, dtype: torch.dtype) -> None:
    values = (torch.rand(shape) * 8).to(dtype)
    stride = tuple(steps[: len(shape)])
    laid_out = lay_out_all({"x": values}, {"x": Layout(stride, offset)}).tensors["x"]
    if not overlaps(laid_out):
        assert torch.equal(
            laid_out.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8),
            values.view(-1).view(torch.uint8),
        )
    assert memory_size(laid_out) <= 4 * values.numel() + 4096 + 200
    assert laid_out.storage_offset() % (64 // dtype.itemsize) == offset % (64 // dtype.itemsize)
    assert bool(laid_out.storage_offset()) == bool(offset)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float8_e4m3fn, torch.complex64])
def test_what_lies_between_elements_is_finite_and_unlike_them(dtype: torch.dtype) -> None:
    values = torch.randn(64).to(dtype)
    between = filling(values, 100).to(torch.complex64)
    assert bool(torch.isfinite(torch.view_as_real(between)).all())
    assert not torch.isin(torch.view_as_real(between)[:, 0], torch.view_as_real(values.to(torch.complex64))).any()


def test_whole_numbers_between_elements_may_be_indices() -> None:
    values = torch.tensor([3, 5, 9])
    assert {*filling(values, 50).tolist()} <= {*range(3, 10)}


def test_places_outside_of_tensors_are_all_others() -> None:
    memory = torch.arange(12)
    rest = outside([memory[1:4], memory[6::3]], 12)
    assert whole_memory(memory)[rest].tolist() == [0, 4, 5, 7, 8, 10, 11]
