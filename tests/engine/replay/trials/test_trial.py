"""What is run for a verdict, in which order and how often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from msprobe_standards import Policy
from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.engine.replay.calls.arguments import Arguments, Subject, TargetError
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.results.outcomes import Skip, SkipReason


def x(*shape: int) -> torch.Tensor:
    return torch.randn(shape).requires_grad_()


class Counting(SimDevice):
    """A device that keeps a diary of what ran, of any side."""

    name = "counting"

    def __init__(self) -> None:
        self.diary: list[str] = []

    def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
        self.diary.append("target")
        return func(*args, **kwargs)

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Note each run, by the dtype: golden is raised."""

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

    monkeypatch.setattr("pytest_msprobe.engine.torch_framework.resolve", lambda *_, **__: counting)
    replay = Replay(call, ReplayConfig(Noisy(), default_policy, TorchFramework()))
    replay.forward()
    assert dtypes.count(torch.float64) == 1 + moved
    assert dtypes.count(torch.float32) == runs


def test_both_directions_share_their_runs(recorder: Any, default_policy: Policy) -> None:
    device = Counting()
    replay = Replay(recorder.Torch.exp(x(3, 4)), ReplayConfig(device, default_policy, TorchFramework()))
    replay.forward()
    replay.backward()
    assert device.diary == ["target", "target"]


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
