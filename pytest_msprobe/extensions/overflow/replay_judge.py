"""Overflow by computing it again: normal where the CPU overflows too, abnormal where only one of the two does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from msprobe_standards.verdict import Verdict
from pytest_msprobe.engine.replay.calls.side import Run
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.pytree import tensors_with_paths
from pytest_msprobe.results.outcomes import BaseSkipReason, Skip, SkipReason
from pytest_msprobe.results.result import OutputResult

_STANDARD = "overflow"


class OverflowSkip(BaseSkipReason):
    """Reason why a replayed record is not judged."""

    NOT_REPRODUCED = "the recorded overflow is not reproduced by rebuilt inputs; record with task tensor"


def overflow_judge(*, recorded_tensors: bool) -> Callable[[Trial], list[OutputResult]]:
    """Return the judge of a trial that compares overflow on the device with overflow on the CPU in the same dtypes.

    ``recorded_tensors`` says whether the inputs are the recorded ones or rebuilt from statistics. The judge raises Skip
    and TargetError as the trial's runs do.
    """
    return partial(_judge, recorded_tensors=recorded_tensors)


def _judge(trial: Trial, *, recorded_tensors: bool) -> list[OutputResult]:
    # Inputs that even the CPU rejects must not reach a device, so the CPU comes first.
    cpu = trial.baseline
    if cpu is None:
        trial.golden  # noqa: B018 - raises with the reason, where raised precision does not help either
        raise Skip(SkipReason.NO_GOLDEN, "the CPU cannot compute this in the recorded dtypes")
    here = dict(_results(cpu, lambda tensor: tensor.detach()))
    there = dict(_results(trial.target, trial.device.get))
    outputs = [
        _output(path, there.get(path), here.get(path))
        for path in {**there, **here}
        if _overflows(there.get(path)) or _overflows(here.get(path))
    ]
    if outputs:
        return outputs
    if not recorded_tensors:
        raise Skip(OverflowSkip.NOT_REPRODUCED)
    reason = "the recorded tensors reproduce the overflow neither on the device nor on the CPU"
    return [OutputResult("output", Verdict("warn", _STANDARD, reason))]


def _results(run: Run, get: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield what a run returned and what it changed, by path, on the CPU."""
    output = torch.tensor(run.output) if isinstance(run.output, float) else run.output
    for path, tensor in tensors_with_paths(output, "output"):
        yield path, get(tensor)
    for path, tensor in run.changed.items():
        yield f"changed.{path}", get(tensor)


def _output(path: str, device: torch.Tensor | None, cpu: torch.Tensor | None) -> OutputResult:
    if _overflows(device) and _overflows(cpu):
        verdict = Verdict("pass", _STANDARD, "normal overflow: the CPU overflows too")
    elif _overflows(device):
        verdict = Verdict("fail", _STANDARD, "abnormal overflow: the device overflows, the CPU does not")
    else:
        verdict = Verdict("fail", _STANDARD, "abnormal: the CPU overflows, the device does not")
    shown = next(tensor for tensor in (device, cpu) if tensor is not None)
    difference = f"device: {_describe(device)}; CPU: {_describe(cpu)}"
    return OutputResult(path, verdict, str(shown.dtype), "", tuple(shown.shape), difference=difference)


def _overflows(tensor: torch.Tensor | None) -> bool:
    return tensor is not None and not bool(torch.isfinite(_widened(tensor)).all())


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    """Return a float8 tensor, on which torch computes nothing, as float32."""
    return tensor.float() if tensor.is_floating_point() and tensor.itemsize == 1 else tensor


def _describe(tensor: torch.Tensor | None) -> str:
    if tensor is None:
        return "no such output"
    wide = _widened(tensor)
    infinite, nan = int(torch.isinf(wide).sum()), int(torch.isnan(wide).sum())
    if not infinite and not nan:
        return "all finite"
    counts = ", ".join(f"{count} {word}" for count, word in ((infinite, "inf"), (nan, "nan")) if count)
    return f"{counts} of {tensor.numel()} elements"
