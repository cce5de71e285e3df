"""A device that raises, lacks a kernel or runs out of memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pytest_msprobe.engine.replay.trials import trial
from pytest_msprobe.results.outcomes import Breakdown, SkipReason


def x(*shape: int) -> torch.Tensor:
    return torch.randn(shape).requires_grad_()


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
