"""One direction of attention that is cleared by sums over all of its heads and by heads that are computed exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch

from msprobe_hooks.dump.names import Direction, api_record
from msprobe_standards import Standard
from msprobe_standards.benchmark import Benchmark
from msprobe_standards.dtypes import float_format
from pytest_msprobe.engine.replay.judging.cancellation import cancelled_gradients
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.extensions.screening.attention import Attention, Place
from pytest_msprobe.extensions.screening.attention_residuals import Summed, residuals
from pytest_msprobe.extensions.screening.attention_sample import AttentionSample, Judged
from pytest_msprobe.extensions.screening.attention_sketches import Came, Sketches, Sums, drawn_sketches, summed
from pytest_msprobe.extensions.screening.config import ScreenedPass, benchmark_of, is_result
from pytest_msprobe.extensions.screening.residuals import Residual
from pytest_msprobe.results.result import OutputResult
from pytest_msprobe.results.screened import ScreenedOutput

# One in so many groups of heads is computed exactly, one at least.
_ONE_IN = 16

# A normal error above this share of a value could hide a wrong row.
_MOST_NORMAL = 0.01

# Residuals may be twice those of the heads that show what is normal, but no limit is widened more than four times.
_RATIO, _WIDEST = 2.0, 4.0


@dataclass(frozen=True, slots=True)
class _Walk:
    """What the groups of a trial's attention are to sum up to; ``sampled`` are those to be computed exactly."""

    places: list[Place]
    sketches: list[Sketches]
    sums: list[Sums]
    sampled: list[int]


@dataclass(frozen=True, slots=True)
class _Output:
    """What a device gave for a ``path`` of a record, and what judges it."""

    record: str
    path: str
    result: torch.Tensor
    standard: Benchmark


# Both directions of a call share one walk, as they share the trial.
_WALKS: WeakKeyDictionary[Trial, _Walk] = WeakKeyDictionary()


def cleared_attention(
    trial: Trial, direction: Direction, select: Callable[[Any], Standard], attention: Attention
) -> list[ScreenedPass | None]:
    """Return the verdicts on all outputs of one direction, None among them where one is left to the exact check.

    Raises Skip and TargetError as the trial's target does.
    """
    results = _results(trial, direction, attention)
    standards = {path: benchmark_of(select(result)) for path, result in results.items()}
    walk = _walked(trial, attention) if results and all(standards.values()) else None
    if walk is None or not all(attention.name_of(path) in walk.sums[0] for path in results):
        return [None]
    sample = AttentionSample(trial, direction, attention, [walk.places[i] for i in walk.sampled])
    if sample.golden is None or sample.golden.keys() != results.keys():
        return [None]
    if direction == "backward" and cancelled_gradients(sample.elements, trial.grad_outputs.values()):
        return [None]
    record = api_record(trial.subject.key, direction)
    found: list[ScreenedPass | None] = []
    for path, result in results.items():
        standard = standards[path]
        assert standard is not None
        found.append(_screened(_Output(record, path, result, standard), attention, walk, sample))
        if found[-1] is None:
            break
    return found


def _results(trial: Trial, direction: Direction, attention: Attention) -> dict[str, torch.Tensor]:
    """Return what the device gave, by path; nothing where that are not the results of this attention."""
    dtype = attention.query.dtype
    if direction == "forward":
        found, shapes = {"output.0": trial.target.output}, {"output.0": attention.shape}
        if trial.subject.output_dtypes not in ((), (str(dtype),)):
            return {}
    else:
        found = {f"grad.{path}": gradient for path, gradient in trial.target_gradients.items()}
        shapes = {f"grad.{path}": tuple(tensor.shape) for path, tensor in attention.operands.values()}
    if not all(path in shapes and is_result(each, shapes[path], dtype) for path, each in found.items()):
        return {}
    return {path: trial.device.get(each).detach() for path, each in found.items()}


def _walked(trial: Trial, attention: Attention) -> _Walk | None:
    """Return the sums of a trial's attention; None where to take them costs what the exact check does."""
    if trial not in _WALKS:
        came = _came(trial, attention)
        # A result of 16 bits is computed again as fast as its sums; gradients share the walk with it.
        if came is None and attention.query.dtype.itemsize == 2:
            return None
        generator = torch.Generator().manual_seed(trial.subject.seed)
        places = list(attention.groups())
        chosen = torch.randperm(len(places), generator=generator)[: max(1, len(places) // _ONE_IN)]
        sketches = [drawn_sketches(attention, generator) for _ in places]
        sums = [summed(attention, *each, came) for each in zip(places, sketches, strict=True)]
        _WALKS[trial] = _Walk(places, sketches, sums, chosen.tolist())
    return _WALKS[trial]


def _came(trial: Trial, attention: Attention) -> Came | None:
    """Return what came for the gradients; None where nothing did, or a gradient of something else is wanted."""
    operands = {path for path, _ in attention.operands.values()}
    if not trial.differentiates or not trial.subject.arguments.differentiable <= operands:
        return None
    tensors = [*trial.grad_outputs.values(), trial.target.output]
    if len(tensors) != 2 or not all(is_result(each, attention.shape, attention.query.dtype) for each in tensors):
        return None
    return Came(tensors[0], trial.device.get(tensors[1]).detach())


def _screened(output: _Output, attention: Attention, walk: _Walk, sample: AttentionSample) -> ScreenedPass | None:
    """Return the verdict on an output that is cleared; None for any other."""
    result, path = output.result, output.path
    scale = sum(float(attention.heads(result, place).double().abs().sum()) for place in walk.places) / result.numel()
    if not scale:
        return None
    judged = sample.judged(path, result, scale, output.standard)
    if judged.verdict.outcome != "pass" or judged.roundoffs * float_format(result.dtype).unit_roundoff > _MOST_NORMAL:
        return None
    found = _residuals(output, judged, scale, attention, walk)
    if not all(each.share <= 1 for each in found.values()):
        return None
    kind, worst = max(found.items(), key=lambda item: item[1].share)
    sampled = result.numel() * len(walk.sampled) // len(walk.places)
    operations = attention.operations // (2 if attention.name_of(path) == "value" else 1)
    cleared = ScreenedOutput(output.record, path, worst.share**0.5, kind, sampled, result.numel(), operations)
    verdict = replace(judged.verdict, reason=f"cleared by screening: {cleared.in_words}")
    return ScreenedPass(OutputResult(path, verdict, str(result.dtype), "", tuple(result.shape)), result[:0], cleared)


def _residuals(output: _Output, judged: Judged, scale: float, attention: Attention, walk: _Walk) -> dict[str, Residual]:
    """Return the worst residuals by kind, as shares of limits that are widened by what the sample shows."""
    name = attention.name_of(output.path)

    def of(groups: Sequence[int], results: Sequence[torch.Tensor]) -> dict[str, Residual]:
        pairs = zip(groups, results, strict=True)
        parts = [Summed(result, walk.sketches[i].of(name), walk.sums[i][name]) for i, result in pairs]
        return residuals(parts, scale, judged.roundoffs, len(walk.places))

    every = [attention.heads(output.result, place) for place in walk.places]
    normal = of(walk.sampled, judged.normal)
    return {
        kind: Residual(each.share / _widening(normal[kind]) ** 2, each.where)
        for kind, each in of(range(len(every)), every).items()
    }


def _widening(normal: Residual) -> float:
    """Return how many times wider than in theory a limit is."""
    return min(max(1.0, _RATIO * math.sqrt(normal.share)), _WIDEST)
