"""Telling, of a record that fails, what it computed with and where it was called."""

from __future__ import annotations

import itertools
import math

import torch

from msprobe_hooks.dump.call_context import outside_frameworks
from msprobe_standards.tensor_layouts import is_plain
from pytest_msprobe.engine.replay.calls.subject import TargetError
from pytest_msprobe.modes.check.follow_up import Judged
from pytest_msprobe.reports.text import clipped
from pytest_msprobe.results.circumstances import InputStatistics, with_called_at, with_inputs
from pytest_msprobe.results.result import DirectionResult
from pytest_msprobe.results.skip_reasons import Skip

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
    return with_inputs(result, [_statistics(*each) for each in itertools.islice(plain, _MOST_INPUTS)])


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
