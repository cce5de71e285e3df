"""One direction of attention, cleared by residuals of sums and by heads that are computed exactly."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch

from msprobe_hooks.dump.names import Direction, api_record
from msprobe_standards import Metrics, Standard, Verdict, measure
from msprobe_standards.benchmark import Benchmark
from msprobe_standards.dtypes import float_format, roundoffs_allowed
from msprobe_standards.verdict import is_rough
from pytest_msprobe.engine.replay.calls.golden import baseline_side, golden_side
from pytest_msprobe.engine.replay.calls.side import Side, run_backward, run_forward
from pytest_msprobe.engine.replay.judging.cancellation import cancelled_gradients
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.error_kinds import REFUSALS
from pytest_msprobe.extensions.screening.attention_sketches import (
    Attention,
    Came,
    Place,
    Sketches,
    Sum,
    Sums,
    columns_of,
    drawn_sketches,
    summed,
)
from pytest_msprobe.extensions.screening.config import Limits, Residual, ScreenedPass, benchmark_of, is_result
from pytest_msprobe.extensions.screening.options import ScreenedOutput
from pytest_msprobe.extensions.screening.tile_sums import TILE
from pytest_msprobe.results.result import OutputResult


@dataclass(frozen=True, slots=True)
class Summed:
    """A group's part of a result, (heads, rows, columns), its sketch (columns, tiles) and what it should sum up to."""

    result: torch.Tensor
    sketch: torch.Tensor
    sum: Sum


def residuals(parts: Sequence[Summed], scale: float, roundoffs: float, groups: int) -> dict[str, Residual]:
    """Return the worst residuals of a result by kind, each as a share of its limit.

    An element's error is taken to have a standard deviation of at most ``roundoffs`` unit roundoffs of
    max(|element|, ``scale``), the mean magnitude of the whole result, and what a row's columns share. The limits are
    those of so many ``groups``. A NaN is the worst.
    """
    form = float_format(parts[0].result.dtype)
    heads, tiles, rows = parts[0].sum.value.shape
    blocks = -(-rows // TILE)
    limits = Limits(groups * heads * (tiles * (rows + blocks) + rows + 1) + 1)
    variance = (roundoffs * form.unit_roundoff) ** 2
    worst: dict[str, Residual] = {}
    total = 0.0
    for i, part in enumerate(parts):
        squares = _squares(part, max(scale, form.min_normal)).div_(variance)
        total += float(squares.mean())
        for kind, values, size, limit in _kinds(squares, columns_of(len(part.sketch)), limits):
            share = float(values.max()) / limit
            if kind not in worst or share > worst[kind].share or math.isnan(share):
                worst[kind] = Residual(share, _where(int(values.argmax()), values.shape, size, i * heads))
    worst["all heads"] = Residual(total / len(parts) / limits.of_mean(len(parts) * heads * tiles * rows), "the whole")
    return worst


def _squares(part: Summed, least: float) -> torch.Tensor:
    """Return the squares of residuals over what they are where each element errs by itself, (heads, tiles, rows)."""
    squares = torch.empty(part.sum.value.shape, dtype=torch.float64)
    sketch, shared = part.sketch.double().mT, part.sum.shared.expand(squares.shape)
    for head, result in enumerate(part.result):
        values = result.double()
        torch.mm(sketch, values.mT, out=squares[head]).sub_(part.sum.value[head]).square_()
        weights = sketch.square() @ values.abs().clamp_(min=least).square_().mT
        squares[head] /= weights.add_(shared[head])
    return squares


def _kinds(
    squares: torch.Tensor, columns: int, limits: Limits
) -> list[tuple[str, torch.Tensor, tuple[int, int], float]]:
    """Return each kind of residual with its squares, (heads, tiles, rows), and its limit.

    Next to them is how many columns and rows one is of, 0 for all; a tile has so many ``columns``.
    """
    heads, tiles, rows = squares.shape
    size = min(TILE, rows)
    blocks = squares[..., : rows // size * size].reshape(heads, tiles, -1, size).mean(3)
    return [
        ("row in a tile", squares, (columns, 1), limits.of_one()),
        ("row", squares.mean(1, keepdim=True), (0, 1), limits.of_mean(tiles)),
        ("tile", blocks, (columns, size), limits.of_mean(size)),
        ("head", squares.mean((1, 2), keepdim=True), (0, 0), limits.of_mean(tiles * rows)),
    ]


def _where(at: int, shape: Sequence[int], size: tuple[int, int], first: int) -> str:
    """Return which head, rows and columns one of (heads, tiles, rows) is of."""
    head, rest = divmod(at, shape[1] * shape[2])
    places = zip(("column", "row"), divmod(rest, shape[2]), size, strict=True)
    words = [f"{name} {at}" if step == 1 else f"{name}s from {at * step}" for name, at, step in places if step]
    return ", ".join([f"head {first + head}", *reversed(words)])


Results = dict[str, list[torch.Tensor]]
"""By the path of an output what each group of a sample has of it, (heads, rows, columns)."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict on a sample, and the error that it shows to be normal.

    ``roundoffs`` is the root mean square of that, in unit roundoffs; ``normal`` are the sample's results that show it:
    the baseline's, or the target's own where they pass by the standard's floor alone.
    """

    verdict: Verdict
    roundoffs: float
    normal: list[torch.Tensor]


class AttentionSample:
    """Groups of heads of which one direction of a trial is computed again, as it is for the whole call."""

    def __init__(self, trial: Trial, direction: Direction, attention: Attention, places: Sequence[Place]) -> None:
        self._trial = trial
        self._direction = direction
        self._attention = attention
        self._places = places
        self._parts = [attention.part(trial.subject.arguments, place) for place in places]

    @functools.cached_property
    def golden(self) -> Results | None:
        """Return what golden gives for the sample; None where the CPU cannot compute it."""
        return self._computed(golden_side(self._trial.subject.operation, self._parts[0]))

    @property
    def elements(self) -> dict[str, torch.Tensor]:
        """Golden's elements, by path."""
        return {path: _in_a_row(groups) for path, groups in (self.golden or {}).items()}

    @functools.cached_property
    def _baseline(self) -> Results | None:
        return self._computed(baseline_side(None))

    def judged(self, path: str, result: torch.Tensor, scale: float, standard: Benchmark) -> Judged:
        """Return the verdict on the sample of a whole ``result`` with its scale, by the limits of its size."""
        golden, bounds = self.elements[path], standard.bounds(result.dtype)

        def measured(values: list[torch.Tensor]) -> Metrics:
            measurement = measure(_in_a_row(values), golden, only=standard.wanted, bounds=bounds, scale=scale)
            return replace(measurement, numel=result.numel())

        target = [self._attention.heads(result, place) for place in self._places]
        metrics = measured(target)
        floor = standard.floor or roundoffs_allowed(result.dtype)
        settled = standard.settled(metrics)
        is_clear = settled is not None and settled.outcome == "pass" and not is_rough(settled)
        if is_clear or self._baseline is None:
            return Judged(settled or standard.decide(metrics, None), floor, target)
        baseline = measured(self._baseline[path])
        normal = max(floor, baseline["rms_scaled_error"])
        return Judged(standard.decide(metrics, standard.credible(baseline)), normal, self._baseline[path])

    def _computed(self, side: Side) -> Results | None:
        try:
            results = [self._of_group(i, side) for i in range(len(self._places))]
        except REFUSALS:
            return None
        return {path: [of_group[path].detach().flatten(0, -3) for of_group in results] for path in results[0]}

    def _of_group(self, i: int, side: Side) -> dict[str, torch.Tensor]:
        """Return the results of one group, by path."""
        subject, backward = self._trial.subject, self._direction == "backward"
        record = api_record(subject.key, self._direction)
        run = run_forward(
            subject.golden, self._parts[i], side, operation=subject.operation, record=record, differentiate=backward
        )
        if not backward:
            return {"output.0": run.output}
        arriving = {
            path: self._attention.cut(arrived, self._places[i]) for path, arrived in self._trial.grad_outputs.items()
        }
        gradients = run_backward(run, arriving, side, record=record)
        return {f"grad.{path}": gradient for path, gradient in gradients.items() if gradient is not None}


def _in_a_row(groups: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([values.reshape(-1) for values in groups])


# A choice: one in so many groups of heads is computed exactly, one at least.
_ONE_IN = 16

# A choice: a normal error above this share of a value could hide a wrong row. Of 16 columns, and with the exponent s of
# `Limits`, √(2 s) · √16 · 0.01 is a third of one.
_MOST_NORMAL = 0.01

# Residuals may be twice those of the heads that show what is normal, as `max_rms_ratio`, but no limit is widened more
# than four times, a choice.
_RATIO, _WIDEST = 2.0, 4.0


@dataclass(frozen=True, slots=True)
class _Walk:
    """Expected sums of the groups of a trial's attention; ``sampled`` are those to be computed exactly."""

    places: list[Place]
    sketches: list[Sketches]
    sums: list[Sums]
    sampled: list[int]


@dataclass(frozen=True, slots=True)
class _Output:
    """Output of a device for a ``path`` of a record, and what judges it."""

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
    passes: list[ScreenedPass | None] = []
    for path, result in results.items():
        standard = standards[path]
        assert standard is not None
        passes.append(_screened(_Output(record, path, result, standard), attention, walk, sample))
        if passes[-1] is None:
            break
    return passes


def _results(trial: Trial, direction: Direction, attention: Attention) -> dict[str, torch.Tensor]:
    """Return what the device gave, by path; nothing where that are not the results of this attention."""
    dtype = attention.query.dtype
    if direction == "forward":
        outputs, shapes = {"output.0": trial.target.output}, {"output.0": attention.shape}
        if trial.subject.output_dtypes not in ((), (str(dtype),)):
            return {}
    else:
        outputs = {f"grad.{path}": gradient for path, gradient in trial.target_gradients.items()}
        shapes = {f"grad.{path}": tuple(tensor.shape) for path, tensor in attention.operands.values()}
    if not all(path in shapes and is_result(output, shapes[path], dtype) for path, output in outputs.items()):
        return {}
    return {path: trial.device.get(output).detach() for path, output in outputs.items()}


def _walked(trial: Trial, attention: Attention) -> _Walk | None:
    """Return the sums of a trial's attention; None where to take them costs what the exact check does."""
    if trial not in _WALKS:
        came = _came(trial, attention)
        # A result of 16 bits is computed again as fast as its sums; gradients share the walk with it.
        if came is None and attention.query.dtype.itemsize == 2:
            return None
        generator = torch.Generator().manual_seed(trial.subject.seed)
        places = list(attention.groups())
        sample = torch.randperm(len(places), generator=generator)[: max(1, len(places) // _ONE_IN)]
        sketches = [drawn_sketches(attention, generator) for _ in places]
        sums = [summed(attention, *group, came) for group in zip(places, sketches, strict=True)]
        _WALKS[trial] = _Walk(places, sketches, sums, sample.tolist())
    return _WALKS[trial]


def _came(trial: Trial, attention: Attention) -> Came | None:
    """Return what came for the gradients; None where nothing did, or a gradient of something else is wanted."""
    operands = {path for path, _ in attention.operands.values()}
    if not trial.differentiates or not trial.subject.arguments.differentiable <= operands:
        return None
    tensors = [*trial.grad_outputs.values(), trial.target.output]
    if len(tensors) != 2 or not all(is_result(tensor, attention.shape, attention.query.dtype) for tensor in tensors):
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
    worst_by_kind = _residuals(output, judged, scale, attention, walk)
    if not all(residual.share <= 1 for residual in worst_by_kind.values()):
        return None
    kind, worst = max(worst_by_kind.items(), key=lambda item: item[1].share)
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
        kind: Residual(residual.share / _widening(normal[kind]) ** 2, residual.where)
        for kind, residual in of(range(len(every)), every).items()
    }


def _widening(normal: Residual) -> float:
    """Return how many times wider than in theory a limit is."""
    return min(max(1.0, _RATIO * math.sqrt(normal.share)), _WIDEST)
