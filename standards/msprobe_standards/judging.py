"""One output judged: target against golden by a standard, with a baseline where the outcome depends on it.

`judge_recorded` needs no tensors: it judges numbers that an earlier run measured and wrote down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import torch

from msprobe_standards.dtypes import Bounds, family, msprobe_bounds
from msprobe_standards.exemption import ExcusedByBaseline, credibly_decided, is_drift_upward, without_ties
from msprobe_standards.fixed_limits import BinaryConsistency
from msprobe_standards.metrics import Metrics, bit_equal, measure
from msprobe_standards.protocol import Standard, with_values
from msprobe_standards.registry import standard as standard_named
from msprobe_standards.sensitivity import ExcusedBySensitivity, Moved, doubtful, has_lost_bits, moved_by
from msprobe_standards.tensor_layouts import in_parts, is_plain
from msprobe_standards.verdict import Verdict, is_rough, worst

if TYPE_CHECKING:
    from msprobe_standards.tensor_layouts import Parts

Baseline: TypeAlias = "object | Callable[[], object] | None"
"""The baseline result, a function that computes it (None: it cannot be had), or None."""

Recorded: TypeAlias = "Callable[[Standard], Metrics | torch.Tensor | None] | None"
"""What looks up a recorded baseline: its result, else its numbers for a standard (None: neither is there); or None."""


def judge(
    target: object,
    golden: object,
    *,
    standard: Standard | str,
    baseline: Baseline = None,
    recorded: Recorded = None,
    moved: Moved = (),
    batch: Sequence[int] = (),
    dtype: torch.dtype | None = None,
) -> Verdict:
    """Judge one output of a call: a tensor or a plain Python value.

    Sparse, quantized and nested tensors are judged part by part (`in_parts`), and the worst part decides. Differing
    layouts, shapes, kinds of number or integer widths fail. Python floats that are not equal are judged as float32
    scalars: they come from ``.item()`` and its kin, whose float64 holds a result computed in at most the precision of
    the tensor it was read from. Any other Python value has to be equal.

    Args:
        target: The output: a CPU tensor of any shape, or a Python value.
        golden: The golden output, of the same shape, computed in raised precision.
        standard: A standard, or the name of one with its default limits.
        baseline: The baseline's output or a function that computes it, called only where the outcome can depend on it.
        recorded: Looks up a recorded baseline, on the same inputs, likewise only where needed. If it returns numbers,
            errors are compared with those, and the baseline only shows which NaN and inf elements are right; if it
            returns a tensor, that replaces the baseline. Python values have no recorded numbers.
        moved: Golden results for inputs moved by one rounding unit of the target's dtype, one per draw, or a function
            that computes them. Only plain tensors that fail by a standard which weighs them need it (`Sensitivity`,
            `ExcusedBySensitivity`).
        batch: The shape of a batch of matrices that the call takes. Doubtful matrices of an output that begins with
            it, and that `ExcusedBySensitivity` passes only for its baseline or conditioning, are judged alone.
        dtype: The target's own dtype where the tensor carries its values in a wider one.

    Returns:
        The verdict.

    Raises:
        ValueError: The standard is unknown.
    """
    if isinstance(standard, str):
        standard = standard_named(standard)
    if isinstance(target, torch.Tensor) and isinstance(golden, torch.Tensor):
        if not (is_plain(target) and is_plain(golden)):
            return _judge_parts(in_parts(target), in_parts(golden), standard, baseline, dtype)
        return _judge_tensor(target, golden, standard, baseline, recorded, moved, dtype, batch)
    return _judge_value(target, golden, standard, baseline)


def failure(standard: str, reason: str) -> Verdict:
    """Return a failing verdict on something that no number describes."""
    return Verdict("fail", standard, reason, margin=math.inf)


def exact_pass(standard: Standard) -> Verdict:
    """Return the verdict on an output that equals golden, rounded to its dtype."""
    return Verdict("pass", standard.name, "", {"cast_error_rate": 0.0}, {"cast_error_rate": 0.0})


def _judge_tensor(
    target: torch.Tensor,
    golden: torch.Tensor,
    standard: Standard,
    baseline: Baseline,
    recorded: Recorded,
    moved: Moved,
    dtype: torch.dtype | None,
    batch: Sequence[int] = (),
) -> Verdict:
    dtype = dtype or target.dtype
    if mismatch := _mismatch(target, golden, dtype):
        return failure(standard.name, mismatch)
    if not target.numel():
        return Verdict("pass", standard.name)
    target, golden = target.detach(), golden.detach()
    if standard.exact_passes and bit_equal(target, golden, dtype):
        return exact_pass(standard)
    standard = fitting(standard, dtype)
    bounds = standard.bounds(dtype)

    def measured(tensor: torch.Tensor, by: torch.Tensor | None = None) -> Metrics:
        return measure(tensor, golden if by is None else by, dtype=dtype, only=standard.wanted, bounds=bounds)

    metrics = measured(target)
    settled = standard.settled(metrics)
    is_settled = settled is not None and settled.outcome == "pass"
    numbers: Metrics | None = None
    is_of_cpu = True

    def movement(units: float) -> list[Metrics]:
        draws = [] if has_lost_bits(target, golden) else _draws(moved, golden, dtype)
        return [measured(moved_by(golden, draw.to(golden.dtype), units)) for draw in draws]

    def decided(metrics: Metrics) -> Verdict:
        if numbers is None or not is_of_cpu:
            return standard.decide(metrics, numbers)
        return credibly_decided(standard, metrics, numbers, lambda: movement(1.0))

    is_open = settled is None or is_rough(settled)
    record = recorded(standard) if recorded and is_open else None
    is_of_cpu = record is None
    if settled is not None and not (is_open and (record is not None or not recorded)):
        verdict = settled
    else:
        if isinstance(record, torch.Tensor):
            baseline = record
        else:
            numbers = record
        adopts = standard.adopts_baseline and metrics["nonfinite_mismatch"] > 0
        reference = _comparable(baseline, golden, dtype) if numbers is None or adopts else None
        if reference is not None and adopts:
            golden = _adopted(target, golden, reference)
            metrics = measured(target)
        if numbers is None and reference is not None:
            numbers = measured(reference)
        verdict = decided(metrics)
        if settled is not None:
            verdict = settled if numbers is None else replace(verdict, reason=settled.reason)
        elif is_drift_upward(verdict, metrics):
            metrics = without_ties(metrics, target, golden, dtype, partial(measured, target))
            verdict = decided(metrics)
    if verdict.outcome == "fail":
        verdict = standard.weighed(verdict, metrics, movement)
    if verdict.outcome == "pass" and not is_settled and _is_batch(golden, batch, standard):
        own = _comparable(baseline, golden, dtype)
        verdict = _wrong_matrix(target, golden, standard, own, moved, dtype, len(batch)) or verdict
    if verdict.outcome in ("pass", "skip") or metrics.worst_index is None:
        return verdict
    at = metrics.worst_index
    return replace(verdict, reason=with_values(verdict.reason, at, target[at].item(), golden[at].item()))


def _is_batch(golden: torch.Tensor, batch: Sequence[int], standard: Standard) -> bool:
    of_batch = bool(batch) and golden.shape[: len(batch)] == tuple(batch)
    return of_batch and isinstance(standard, ExcusedBySensitivity)


def _wrong_matrix(
    target: torch.Tensor,
    golden: torch.Tensor,
    standard: Standard,
    baseline: torch.Tensor | None,
    moved: Moved,
    dtype: torch.dtype,
    dims: int,
) -> Verdict | None:
    """Return the failure of the first of the doubtful matrices of a batch that fails where it is judged alone."""
    for at in doubtful(target, golden, baseline, dtype, dims):

        def moved_there(at: tuple[int, ...] = at) -> list[torch.Tensor]:
            return [draw[at] for draw in _draws(moved, golden, dtype)]

        own = None if baseline is None else baseline[at]
        alone = _judge_tensor(target[at], golden[at], standard, own, None, moved_there, dtype)
        if alone.outcome == "fail":
            return replace(alone, reason=f"matrix {at} of the batch: {alone.reason}")
    return None


def _judge_parts(
    target: torch.Tensor | Parts,
    golden: torch.Tensor | Parts,
    standard: Standard,
    baseline: Baseline,
    dtype: torch.dtype | None,
) -> Verdict:
    if isinstance(target, torch.Tensor) and isinstance(golden, torch.Tensor):
        return _judge_tensor(target, golden, standard, baseline, None, (), dtype)
    if isinstance(target, torch.Tensor) or isinstance(golden, torch.Tensor) or target.keys() != golden.keys():
        return failure(standard.name, f"output is {_layout(target)}, golden is {_layout(golden)}")
    reference = _in_parts(_obtained(baseline))
    verdicts = []
    for name, part in target.items():
        other = None if reference is None or isinstance(reference, torch.Tensor) else reference.get(name)
        own = dtype if isinstance(part, torch.Tensor) and part.is_floating_point() else None
        verdict = judge(part, golden[name], standard=standard, baseline=other, dtype=own)
        verdicts.append(replace(verdict, reason=verdict.reason and f"{name}: {verdict.reason}"))
    # What was left out of one part is not made up for by the others.
    left_out = [verdict for verdict in verdicts if verdict.outcome == "skip"]
    decisive = worst(verdicts)
    assert decisive is not None
    return left_out[0] if left_out and decisive.outcome == "pass" else decisive


def _in_parts(reference: object) -> torch.Tensor | Parts | None:
    return in_parts(reference) if isinstance(reference, torch.Tensor) else None


def _layout(output: torch.Tensor | Parts) -> str:
    return "strided" if isinstance(output, torch.Tensor) else str(output["layout"])


def _mismatch(tensor: torch.Tensor, golden: torch.Tensor, dtype: torch.dtype) -> str:
    """Return why two tensors cannot be compared element by element; empty where they can."""
    if tensor.shape != golden.shape:
        return f"shape is {tuple(tensor.shape)}, golden has {tuple(golden.shape)}"
    kind, golden_kind = family(dtype), family(golden.dtype)
    if kind != golden_kind or (kind == "int" and dtype != golden.dtype):
        return f"dtype is {dtype}, golden has {golden.dtype}"
    return ""


def fitting(standard: Standard, dtype: torch.dtype) -> Standard:
    """Return the standard that judges outputs of a dtype where this one was chosen.

    Args:
        standard: The chosen standard.
        dtype: The dtype of the output.

    Returns:
        The same standard, or for integers and bools that it does not judge, one that requires equality.
    """
    if family(dtype) not in ("bool", "int") or standard.judges_integers:
        return standard
    return ExcusedByBaseline(BinaryConsistency()) if standard.adopts_baseline else BinaryConsistency()


def _comparable(baseline: Baseline, golden: torch.Tensor, dtype: torch.dtype) -> torch.Tensor | None:
    reference = _in_parts(_obtained(baseline))
    if not isinstance(reference, torch.Tensor) or _mismatch(reference, golden, dtype):
        return None
    return reference.detach()


def _draws(moved: Moved, golden: torch.Tensor, dtype: torch.dtype) -> Sequence[torch.Tensor]:
    """Return the moved golden results if all of them can be compared, else none."""
    draws = [_comparable(draw, golden, dtype) for draw in (moved() if callable(moved) else moved)]
    present = [draw for draw in draws if draw is not None]
    return present if len(present) == len(draws) else []


def _obtained(baseline: Baseline) -> object:
    return baseline() if callable(baseline) else baseline


def _adopted(target: torch.Tensor, golden: torch.Tensor, baseline: torch.Tensor) -> torch.Tensor:
    """Return golden with the NaN and inf results that target and baseline share."""
    result, reference = target.to(golden.dtype), baseline.to(golden.dtype)
    same = (result == reference) | (result.isnan() & reference.isnan())
    return torch.where(same & ~(result.isfinite() & golden.isfinite()), result, golden)


def _judge_value(target: object, golden: object, standard: Standard, baseline: Baseline) -> Verdict:
    if type(target) is not type(golden):
        return failure(standard.name, f"output is {type(target).__name__}, golden is {type(golden).__name__}")
    if _equal(target, golden):
        return Verdict("pass", standard.name)
    if isinstance(target, (float, complex)) and not standard.scalars_exact:
        reference = _obtained(baseline)
        wide = torch.float64 if isinstance(target, float) else torch.complex128
        verdict = _judge_tensor(
            torch.tensor(target, dtype=wide),
            torch.tensor(golden, dtype=wide),
            standard,
            torch.tensor(reference, dtype=wide) if isinstance(reference, type(target)) else None,
            None,
            (),
            torch.float32 if isinstance(target, float) else torch.complex64,
        )
        return replace(verdict, reason=verdict.reason and f"Python {type(target).__name__}: {verdict.reason}")
    return failure(standard.name, f"output is {target!r:.200}, golden is {golden!r:.200}; they must be equal")


def _equal(target: object, golden: object) -> bool:
    """Compare by value; NaN equals NaN."""
    if isinstance(target, (float, complex)):
        return target == golden or (target != target and golden != golden)
    return bool(target == golden)


@dataclass(frozen=True)
class RecordedOutput:
    """The recorded numbers of one output.

    Args:
        dtype: The target's dtype.
        numel: Its number of elements.
        metrics: The metrics by name, counted by `msprobe_bounds`.
        own_bounds: The bounds of the standard that judged the output then.
        own_metrics: The metrics by name, counted by ``own_bounds``.
    """

    dtype: torch.dtype
    numel: int
    metrics: Mapping[str, float]
    own_bounds: Bounds | None = None
    own_metrics: Mapping[str, float] = field(default_factory=dict)

    def metrics_for(self, standard: Standard) -> Metrics | None:
        """Return the metrics that a standard reads; None where one is missing or was counted by other bounds."""
        bounds = standard.bounds(self.dtype)
        if bounds == msprobe_bounds(self.dtype):
            numbers = self.metrics
        else:
            numbers = self.own_metrics if bounds == self.own_bounds else {}
        if not numbers.keys() >= standard.wanted | {"nonfinite_mismatch"}:
            return None
        return Metrics(numbers, self.dtype, self.numel)


def judge_recorded(
    target: RecordedOutput, *, standard: Standard, recorded: Callable[[Standard], Metrics | None] | None = None
) -> Verdict | None:
    """Judge an output by its recorded numbers.

    Args:
        target: The numbers of the output.
        standard: The standard.
        recorded: Looks up the baseline's numbers, as for `judge`; called only where the outcome depends on them.

    Returns:
        The verdict; None where the numbers are not those that the standard reads.
    """
    standard = fitting(standard, target.dtype)
    if not target.numel:
        return Verdict("pass", standard.name)
    if standard.exact_passes and target.metrics.get("cast_error_rate") == 0:
        return Verdict("pass", standard.name, "", {"cast_error_rate": 0.0}, {"cast_error_rate": 0.0})
    metrics = target.metrics_for(standard)
    if metrics is None:
        return None
    settled = standard.settled(metrics)
    if settled is not None and not is_rough(settled):
        return settled
    baseline = recorded(standard) if recorded else None
    if settled is not None and baseline is None:
        return settled
    verdict = standard.decide(metrics, baseline)
    return verdict if settled is None else replace(verdict, reason=settled.reason)
