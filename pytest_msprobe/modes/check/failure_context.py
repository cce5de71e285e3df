"""Context of failures: call site, statistics of inputs, and results that the CPU computed."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import torch

from msprobe_hooks.dump.call_context import outside_frameworks
from msprobe_standards.tensor_layouts import is_plain
from pytest_msprobe.engine.framework_names import PYTORCH
from pytest_msprobe.engine.replay.calls.arguments import TargetError
from pytest_msprobe.engine.replay.cpu_fallback import has_cpu_fallback, ops_without_kernel
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.error_kinds import is_out_of_memory
from pytest_msprobe.engine.values.pytree import map_tensors
from pytest_msprobe.engine.values.suppress_warnings import suppress_warnings
from pytest_msprobe.modes.check.follow_ups import Judged
from pytest_msprobe.reports.text import clipped
from pytest_msprobe.results.outcomes import Skip
from pytest_msprobe.results.result import LITTLE_JUDGED, DirectionResult, InputStatistics, with_called_at, with_inputs

# What a journal keeps of a record is bounded, whatever its call is like.
_MOST_INPUTS, _MOST_FRAMES, _FRAME_LENGTH = 16, 20, 300


def add_failure_context(judged: Judged) -> DirectionResult:
    """Return the result of a failing record with statistics of its inputs and its call stack, innermost first."""
    result = judged.result
    if result.verdict.outcome != "fail" or result.breakdown is not None:
        return result
    frames = judged.dump.surroundings.stacks.of_call(result.record) or ()
    if frames:
        shown = [clipped(frame, _FRAME_LENGTH) for frame in outside_frameworks(frames)[:_MOST_FRAMES]]
        result = with_called_at(result, shown)
    try:
        inputs = judged.replay.input_tensors(judged.direction)
    except (Skip, TargetError):
        return result
    plain = ((path, tensor) for path, tensor in inputs.items() if is_plain(tensor) and tensor.numel())
    return with_inputs(
        result, [_statistics(*tensor_with_path) for tensor_with_path in itertools.islice(plain, _MOST_INPUTS)]
    )


def _statistics(path: str, tensor: torch.Tensor) -> InputStatistics:
    """Return the statistics of a tensor that has elements; of complex numbers those of their magnitudes."""
    magnitudes = tensor.abs() if tensor.is_complex() else tensor
    finite = magnitudes.detach().double()
    finite = finite[finite.isfinite()]
    least = greatest = mean = rms = math.nan
    if finite.numel():
        least, greatest, mean = float(finite.min()), float(finite.max()), float(finite.mean())
        rms = float(finite.square().mean().sqrt())
    lost = tensor.numel() - finite.numel()
    return InputStatistics(path, str(tensor.dtype), tuple(tensor.shape), least, greatest, mean, rms, lost)


class ReportLeftToCpu:
    """Runs a judged call once more, watched, and says what the card left to the CPU.

    It does so once for a function, dtypes, dimensions and other arguments: calls that share them use the same kernels.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[str, ...]] = {}

    def __call__(self, judged: Judged) -> DirectionResult:
        """Return the result of a judged call, with the operators that the card left to the CPU."""
        setup, result = judged.replay.setup, judged.result
        is_plain = setup.framework.name == PYTORCH and not hasattr(type(setup.device), "eager")
        if not (result.outputs and is_plain and has_cpu_fallback(setup.device.location())):
            return result
        operators = self._operators(judged)
        if not operators:
            return result
        reason = f"the card has no {', '.join(operators)}: computed by the CPU"
        if result.verdict.outcome == "fail":
            return replace(result, notes=(*result.notes, f"{reason[0].upper()}{reason[1:]}."))
        little = "; ".join(filter(None, (reason, result.extras.get(LITTLE_JUDGED))))
        return result.with_extra(LITTLE_JUDGED, little)

    def _operators(self, judged: Judged) -> tuple[str, ...]:
        trial = judged.replay.trial
        kind = _kind(trial, judged)
        if kind not in self._known:
            with suppress_warnings():
                try:
                    self._known[kind] = ops_without_kernel(trial, judged.direction)
                except (Skip, TargetError):
                    return ()
                except Exception as error:
                    # There was room for one run; that there is none for a second takes no verdict back.
                    if not is_out_of_memory(error):
                        raise
                    return ()
        return self._known[kind]


def _kind(trial: Trial, judged: Judged) -> tuple[object, ...]:
    """Return what decides which kernels a call uses."""
    subject = trial.subject
    operands = [subject.arguments.args, subject.arguments.kwargs]
    arguments = map_tensors(lambda tensor: (tensor.dtype, tensor.dim(), tensor.layout), operands)
    return judged.replay.call.name.qualified_api, judged.direction, subject.autocast, repr(arguments)
