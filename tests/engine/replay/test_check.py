"""The whole check: what is run, in which order and how often, and what becomes of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from msprobe_hooks.dump.schema import TensorElement
from msprobe_standards import Policy
from pytest_msprobe import check_call
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.engine.replay import trial
from pytest_msprobe.engine.replay.arguments import Arguments
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.subject import Subject, TargetError
from pytest_msprobe.engine.replay.trial import Setup, Trial
from pytest_msprobe.results.outcomes import Breakdown
from pytest_msprobe.results.result import CallResult
from pytest_msprobe.results.skips import Skip, SkipReason


def x(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float32).to(dtype).requires_grad_()


class Counting(SimDevice):
    """A device that keeps a diary of what ran, of any side."""

    name = "counting"

    def __init__(self) -> None:
        self.diary: list[str] = []

    def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
        self.diary.append("target")
        return func(*args, **kwargs)

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Note each run, told apart by the dtype: golden is raised."""

        def counting(first: torch.Tensor, *rest: Any) -> Any:
            self.diary.append("golden" if first.dtype is torch.float64 else "same dtype")
            return function(first, *rest)

        return counting


def trial_of(device: Counting, function: Callable[..., Any], *args: Any, backward: bool = False) -> Trial:
    wanted = frozenset({"args.0"}) if backward else frozenset[str]()
    arrives = (lambda output: {"": torch.ones(output.shape)}) if backward else None
    subject = Subject("k", "f", function, device.counted(function), Arguments(args, {}, wanted), arrives)
    return Trial(subject, device)


def test_nothing_runs_before_it_is_asked_for_and_nothing_runs_twice() -> None:
    device = Counting()
    trial = trial_of(device, torch.exp, torch.ones(3))
    assert device.diary == []
    assert trial.golden is trial.golden
    assert trial.target is trial.target
    assert device.diary == ["golden", "target"]
    assert trial.baseline is trial.baseline
    assert device.diary == ["golden", "target", "same dtype"]


def test_the_golden_run_comes_first_and_spares_the_device_what_the_cpu_rejects(recorder: Any, check: Any) -> None:
    device = Counting()
    call = recorder.Torch.mm(x(3, 4), x(4, 5))
    broken = recorder.keep(
        "Torch.mm.9",
        {"input_args": [{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [3, 4], "Max": 1, "Min": 0}] * 2},
    )
    result = check(broken, device=device)
    assert result.forward.skip is SkipReason.REJECTED_INPUTS
    assert "mat1 and mat2" in result.forward.verdict.reason
    assert device.diary == []
    assert check(call, device=device).forward.verdict.outcome == "pass"
    assert device.diary


def test_a_number_that_no_dtype_holds_is_what_the_cpu_rejects(recorder: Any, check: Any) -> None:
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [3, 4], "Max": 1, "Min": 0}
    call = recorder.keep("Torch.add.9", {"input_args": [tensor, {"type": "int", "value": 10**30}]})
    assert check(call).forward.skip is SkipReason.REJECTED_INPUTS


@pytest.mark.parametrize(("function", "runs", "moved"), [("relu", 0, 0), ("softmax", 1, 2)])
def test_the_baseline_runs_once_and_only_where_a_standard_needs_it_and_golden_again_only_for_a_failure(
    recorder: Any, default_policy: Policy, monkeypatch: pytest.MonkeyPatch, function: str, runs: int, moved: int
) -> None:
    rest = (-1,) if function == "softmax" else ()
    call = recorder.record("Functional", function, (x(40, 30),), {"dim": -1} if rest else {})
    dtypes: list[torch.dtype] = []
    original = getattr(F, function)

    class Noisy(SimDevice):
        """Errs so much that the standard asks how much is normal."""

        name = "noisy"

        def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
            output = original(*args, **kwargs)
            return output if function == "relu" else output * 1.001

    def counting(first: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        dtypes.append(first.dtype)
        return original(first, *args, **kwargs)

    monkeypatch.setattr("pytest_msprobe.engine.frameworks.torch.resolve", lambda *_, **__: counting)
    replay = Replay(call, Setup(Noisy(), default_policy))
    replay.forward()
    assert dtypes.count(torch.float64) == 1 + moved
    assert dtypes.count(torch.float32) == runs


def test_both_directions_share_their_runs(recorder: Any, default_policy: Policy) -> None:
    device = Counting()
    replay = Replay(recorder.Torch.exp(x(3, 4)), Setup(device, default_policy))
    replay.forward()
    replay.backward()
    assert device.diary == ["target", "target"]


def test_the_backward_direction_stands_alone(recorder: Any, default_policy: Policy) -> None:
    call = recorder.Torch.exp(x(3, 4))
    alone = Replay(call, Setup(CpuDevice(), default_policy)).backward()
    together = Replay(call, Setup(CpuDevice(), default_policy))
    together.forward()
    assert alone.verdict == together.backward().verdict
    assert alone.record == "Torch.exp.0.backward"


def test_a_device_that_raises_where_the_cpu_does_not_fails(recorder: Any, check: Any, device_that: Any) -> None:
    def break_down(func: Any, args: Any, kwargs: Any) -> Any:
        raise RuntimeError("aicore exception")

    result = check(recorder.Torch.exp(x(3)), device=device_that(break_down))
    assert result.forward.verdict.outcome == "fail"
    assert "aicore exception" in result.forward.verdict.reason
    # One fault is one failing item.
    assert result.backward.skip is SkipReason.FORWARD_FAILED
    assert "aicore exception" in result.backward.verdict.reason


def test_a_missing_kernel_is_a_skip(recorder: Any, check: Any, device_that: Any) -> None:
    def refuse(func: Any, args: Any, kwargs: Any) -> Any:
        raise NotImplementedError("exp not implemented for 'BFloat16'")

    assert check(recorder.Torch.exp(x(3)), device=device_that(refuse)).forward.skip is SkipReason.UNSUPPORTED


@pytest.mark.parametrize("error", [MemoryError(), torch.cuda.OutOfMemoryError("out of memory")], ids=str)
def test_memory_that_runs_out_is_a_failure_of_its_own(
    recorder: Any, check: Any, device_that: Any, error: Exception
) -> None:
    def refuse(func: Any, args: Any, kwargs: Any) -> Any:
        raise error

    result = check(recorder.Torch.exp(x(3)), device=device_that(refuse)).forward
    assert (result.verdict.outcome, result.breakdown) == ("fail", Breakdown.OOM)
    assert "memory ran out" in result.verdict.reason


def test_memory_that_runs_out_for_the_golden_run_is_no_skip(
    recorder: Any, check: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(trial, "run_forward", refuse)
    result = check(recorder.Torch.exp(x(3))).forward
    assert (result.verdict.outcome, result.breakdown) == ("fail", Breakdown.OOM)


def test_an_interruption_is_not_swallowed(recorder: Any, check: Any, device_that: Any) -> None:
    def interrupt(func: Any, args: Any, kwargs: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check(recorder.Torch.exp(x(3)), device=device_that(interrupt))


def altered(change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    def call(func: Any, args: Any, kwargs: Any) -> Any:
        return change(func(*args, **kwargs))

    return call


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda y: y + 0.01, ""),
        (lambda y: y[:2], "shape"),
        (lambda y: y.double(), "dtype"),
        (lambda y: [y, y], "surplus"),
        (lambda y: torch.where(torch.arange(y.numel()).view_as(y) == 3, math.nan, y), "NaN|nan"),
        (lambda y: y.half(), "dtype"),
    ],
    ids=["value", "shape", "wider dtype", "container", "one NaN", "narrower dtype"],
)
def test_every_kind_of_wrong_result_fails(
    recorder: Any, check: Any, device_that: Any, change: Any, reason: str
) -> None:
    verdict = check(recorder.Torch.exp(x(3, 4)), device=device_that(altered(change))).forward.verdict
    assert verdict.outcome == "fail"
    assert any(word in verdict.reason for word in reason.split("|"))


def test_a_wrong_gradient_fails_though_the_result_is_right(recorder: Any, check: Any) -> None:
    class Wrong(SimDevice):
        name = "wrong"

        def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
            found = func(*args, **kwargs)
            return tuple(gradient * 1.1 for gradient in found) if record.endswith(".backward") else found

    result = check(recorder.Functional.layer_norm(x(4, 8), (8,), x(8), bias=x(8)), device=Wrong())
    assert result.forward.verdict.outcome == "pass"
    assert result.backward.verdict.outcome == "fail"
    assert {output.path for output in result.backward.outputs} == {"grad.args.0", "grad.args.2", "grad.kwargs.bias"}


def test_a_missing_gradient_fails(recorder: Any, check: Any) -> None:
    class Forgetful(SimDevice):
        name = "forgetful"

        def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
            found = func(*args, **kwargs)
            return (None, *found[1:]) if record.endswith(".backward") else found

    assert check(recorder.Torch.mul(x(3), x(3)), device=Forgetful()).backward.verdict.outcome == "fail"


@pytest.mark.parametrize("place", ["args", "kwargs"])
def test_a_wrong_running_statistic_fails(recorder: Any, check: Any, device_that: Any, place: str) -> None:
    def forget_to_update(func: Any, args: Any, kwargs: Any) -> Any:
        kept = {key: value.clone() if "running" in key else value for key, value in kwargs.items()}
        return func(args[0], *(each.clone() for each in args[1:3]), *args[3:], **kept)

    mean, var = torch.zeros(3), torch.ones(3)
    if place == "args":
        call = recorder.Functional.batch_norm(x(4, 3), mean, var, None, None, True)
    else:
        call = recorder.Functional.batch_norm(x(4, 3), running_mean=mean, running_var=var, training=True)
    assert check(call).forward.verdict.outcome == "pass"
    assert check(call, device=device_that(forget_to_update)).forward.verdict.outcome == "fail"


def test_a_setitem_that_writes_nothing_fails(recorder: Any, check: Any, device_that: Any) -> None:
    call = recorder.Tensor["__setitem__"](torch.zeros(4, 6), slice(1, 3), 5.0)
    assert check(call).forward.verdict.outcome == "pass"
    assert check(call, device=device_that(lambda *_: None)).forward.verdict.outcome == "fail"


def test_what_returns_and_changes_nothing_is_a_skip_and_no_pass(recorder: Any, check: Any) -> None:
    call = recorder.Torch._assert_async(torch.tensor(1))
    assert check(call).forward.skip is SkipReason.NOT_AN_OPERATION


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Distributed.all_reduce.0", SkipReason.COLLECTIVE),
        ("Torch.no_such.0", SkipReason.UNKNOWN_API),
        ("NPU.npu_no_such.0", SkipReason.NO_REFERENCE),
        ("Tensor.numpy.0", SkipReason.NOT_AN_OPERATION),
    ],
)
def test_what_cannot_be_judged_is_a_skip_in_both_directions(
    recorder: Any, check: Any, name: str, reason: SkipReason
) -> None:
    element = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1.0, "Min": 0.0}
    result = check(recorder.keep(name, {"input_args": [element]}, {"input": [element], "output": []}))
    assert (result.forward.skip, result.backward.skip) == (reason, reason)
    assert result.forward.verdict.outcome == "skip"


def test_a_backward_without_anything_to_differentiate_is_a_skip(recorder: Any, check: Any) -> None:
    element = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1.0, "Min": 0.0}
    call = recorder.keep("Torch.exp.0", {"input_args": [element]}, {"input": [element], "output": []})
    result = check(call)
    assert result.forward.verdict.outcome == "pass"
    assert result.backward.skip is SkipReason.NO_GRADIENT


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64", "complex32"])
@pytest.mark.parametrize("api", ["add", "mul", "exp", "matmul", "sum"])
def test_dtypes_that_the_cpu_hardly_knows_pass_or_skip_with_a_reason(
    recorder: Any, check: Any, dtype: str, api: str
) -> None:
    element = {"type": "torch.Tensor", "dtype": f"torch.{dtype}", "shape": [4, 4], "Max": None, "Min": None}
    operands = [element] * (2 if api in ("add", "mul", "matmul") else 1)
    direction = check(recorder.keep(f"Torch.{api}.0", {"input_args": operands, "output": [element]})).forward
    assert direction.verdict.outcome in ("pass", "skip"), direction.verdict
    if direction.verdict.outcome == "skip":
        allowed = {SkipReason.UNSUPPORTED, SkipReason.NO_GOLDEN, SkipReason.REJECTED_INPUTS}
        assert direction.skip in allowed
        assert len(direction.verdict.reason) > len(direction.skip.value)


def test_seeds_change_the_inputs_and_nothing_else_does(recorder: Any, check: Any) -> None:
    seen: list[torch.Tensor] = []

    class Watching(SimDevice):
        name = "watching"

        def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
            seen.append(args[0].detach().clone())
            return func(*args, **kwargs)

    call, other = recorder.Torch.exp(x(3, 4).detach()), recorder.Torch.sin(x(3, 4).detach())
    for each, seed in ((call, 0), (other, 0), (call, 0), (call, 1)):
        check(each, device=Watching(), seed=seed)
    assert torch.equal(seen[0], seen[2])
    assert not torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[3])


def test_deprecated_apis_raise_no_warning(recorder: Any, check: Any) -> None:
    call = recorder.Functional.upsample(x(1, 2, 3, 3), scale_factor=2)
    assert check(call).forward.verdict.outcome == "pass"


def test_autocast_is_replayed(recorder: Any, check: Any) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        call = recorder.Torch.mm(x(3, 4), x(4, 5))
    assert call.forward.output[0].dtype == "torch.bfloat16"
    result = check(call)
    assert (result.forward.verdict.outcome, result.backward.verdict.outcome) == ("pass", "pass")
    assert result.forward.outputs[0].target_dtype == "torch.bfloat16"
    assert result.forward.outputs[0].golden_dtype == "torch.float64"


def test_real_data_are_used_where_there_are_any(recorder: Any, check: Any, tmp_path: Path) -> None:
    call = recorder.Torch.exp(torch.zeros(3))
    values = torch.tensor([1.0, 2.0, 3.0])
    torch.save(values, tmp_path / "x.pt")
    element = TensorElement("torch.Tensor", "torch.float32", (3,), max=0.0, min=0.0, data_name="x.pt")
    stored = type(call)(
        call.name, type(call.forward)("", [element], {}, call.forward.output, {}), call.backward, tmp_path
    )
    seen: list[torch.Tensor] = []

    class Watching(SimDevice):
        name = "watching"

        def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
            seen.append(args[0])
            return func(*args, **kwargs)

    check(stored, device=Watching())
    check(stored, device=Watching(), real_data=False)
    assert seen[0].tolist() == [1.0, 2.0, 3.0]
    assert seen[1].tolist() == [0.0, 0.0, 0.0]


def test_check_call_checks_both_directions_with_a_policy_by_name(recorder: Any) -> None:
    result = check_call(recorder.Torch.exp(x(3)), device=CpuDevice(), policy="msprobe-1.2", seed=3)
    assert isinstance(result, CallResult)
    assert result.forward.verdict.outcome == "pass"
    assert result.backward is not None
    assert result.backward.verdict.outcome == "pass"
    without = check_call(recorder.Torch.exp(torch.ones(3)), device=CpuDevice())
    assert without.backward is None


def test_a_target_that_fails_keeps_failing() -> None:
    class Broken(Counting):
        def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
            raise RuntimeError("no")

    trial = trial_of(Broken(), torch.exp, torch.ones(3), backward=True)
    for _ in range(2):
        with pytest.raises(TargetError, match="no"):
            trial.target
    with pytest.raises(TargetError):
        trial.target_gradients


def test_a_baseline_that_the_cpu_cannot_make_is_none() -> None:
    def only_wide(values: torch.Tensor) -> torch.Tensor:
        if values.dtype is torch.float32:
            raise RuntimeError("not implemented for 'Float'")
        return values

    trial = trial_of(Counting(), only_wide, torch.ones(3), backward=True)
    assert trial.golden.output.dtype is torch.float64
    assert trial.baseline is None
    assert trial.baseline_gradients is None


def test_a_golden_run_that_only_raised_precision_breaks_is_named_so() -> None:
    def only_narrow(values: torch.Tensor) -> torch.Tensor:
        if values.dtype is torch.float64:
            raise RuntimeError("expected Float")
        return values

    with pytest.raises(Skip) as caught:
        trial_of(Counting(), only_narrow, torch.ones(3)).golden
    assert caught.value.reason is SkipReason.NO_GOLDEN
