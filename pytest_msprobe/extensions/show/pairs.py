"""Two files, records or cases side by side: tensors of one name are a pair, measured and judged."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from msgspec.structs import replace

from msprobe_standards import Verdict, judge
from msprobe_standards.registry import standard
from msprobe_standards.tensor_layouts import is_plain
from pytest_msprobe.engine.replay.judging.outputs import allowance_of
from pytest_msprobe.engine.values.error_locations import error_map
from pytest_msprobe.engine.values.tolerance import Allowance
from pytest_msprobe.extensions.show.open_named import Named
from pytest_msprobe.extensions.show.tensor_differences import Differences, Tolerance, look, usual_tolerance
from pytest_msprobe.extensions.show.writers import Difference, Pair
from pytest_msprobe.modes.compare.judging.policy import ComparePolicy
from pytest_msprobe.modes.compare.measure.call_values import measure_statistics, scaled_error
from pytest_msprobe.modes.compare.measure.tensor_pairs import measure_tensors
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, DataMode, Outcome, Row


@dataclass(frozen=True, slots=True)
class Judging:
    """Manner in which two tensors are judged and shown.

    ``standard`` names the one that decides, None leaves it to the policy of a comparison. ``rtol`` and ``atol`` None
    are those that are usual for the dtypes. ``count`` elements are listed of each kind; ``always_map`` makes an error
    map of tensors that pass, too.
    """

    policy: ComparePolicy
    standard: str | None = None
    rtol: float | None = None
    atol: float | None = None
    count: int = 10
    always_map: bool = False

    def tolerance(self, first: torch.dtype, second: torch.dtype) -> Tolerance:
        """Return what an element may be off by."""
        usual = usual_tolerance(first, second)
        if self.rtol is None and self.atol is None:
            return usual
        return Tolerance(self.rtol or 0.0, self.atol or 0.0)


def pair_up(first: Sequence[Named], second: Sequence[Named], judging: Judging) -> Iterator[Pair]:
    """Yield the pairs of two sides by name, in the first one's order; single tensors are a pair whatever their names.

    Raises ValueError for an unknown standard.
    """
    if len(first) == len(second) == 1:
        yield _pair(first[0].name or second[0].name, first[0], second[0], judging)
        return
    others = {named.name: named for named in second}
    for named in first:
        yield _pair(named.name, named, others.pop(named.name, None), judging)
    for name, named in others.items():
        yield _pair(name, None, named, judging)


def _pair(name: str, first: Named | None, second: Named | None, judging: Judging) -> Pair:
    one, other = (None if named is None else look(named, judging.count) for named in (first, second))
    if first is None or second is None:
        reason = f"only the {'second' if first is None else 'first'} has it"
        return Pair(name, one, other, "fail", reason)
    problem = first.problem or second.problem
    if problem:
        return Pair(name, one, other, "fail", problem)
    if first.tensor is None or second.tensor is None or first.tensor.shape != second.tensor.shape:
        return Pair(name, one, other, *_judged(_row(name, first, second), judging, "statistics"))
    if not (is_plain(first.tensor) and is_plain(second.tensor)):
        outcome, reason, _ = _by_standard(first.tensor, second.tensor, judging.standard or "binary_consistency")
        return Pair(name, one, other, outcome, reason)
    return _compared(Pair(name, one, other, "pass"), first, second, first.tensor, second.tensor, judging)


def _compared(
    pair: Pair, first: Named, second: Named, one: torch.Tensor, other: torch.Tensor, judging: Judging
) -> Pair:
    measured = measure_tensors(one, other)
    tolerance = judging.tolerance(one.dtype, other.dtype)
    # Without a tolerance what is right is rounded correctly, and equal where it is an integer.
    allowance = Allowance(ulps=0.0 if any(tolerance) else 0.5, absolute=tolerance.atol, relative=tolerance.rtol)
    if judging.standard is None:
        row = replace(_row(pair.name, first, second), metrics=measured.scaled_metrics, worst=measured.worst)
        outcome, reason = _judged(row, judging, "tensor")
    else:
        outcome, reason, verdict = _by_standard(one, other, judging.standard)
        allowance = allowance_of(verdict, standard(judging.standard), one.dtype, other)
    found = Differences(judging.count, tolerance)
    found.over(one, other)
    elements, largest = found.elements(one, other)
    is_mapped = outcome in ("warn", "fail") or (judging.always_map and bool(elements))
    difference = Difference(
        one.numel(),
        found.equal,
        found.beyond,
        tolerance.rtol,
        tolerance.atol,
        measured.scaled_metrics,
        elements,
        largest,
        error_map(one, other, allowance) if is_mapped else None,
        _finite_metrics(one, other) if measured.scaled_metrics.get("nonfinite_mismatch") else None,
    )
    return replace(pair, outcome=outcome, reason=reason, difference=difference)


def _finite_metrics(one: torch.Tensor, other: torch.Tensor) -> dict[str, float] | None:
    both = _is_finite(one) & _is_finite(other)
    return measure_tensors(one[both], other[both]).scaled_metrics if both.any() else None


def _is_finite(values: torch.Tensor) -> torch.Tensor:
    # Torch has no such test of its 8-bit numbers.
    return torch.isfinite(values.float() if values.is_floating_point() and values.element_size() == 1 else values)


def _row(name: str, first: Named, second: Named) -> Row:
    target, golden = first.value, second.value
    row = Row(group="output", place=name, target=target, golden=golden, outcome="pass")
    if target.is_tensor != golden.is_tensor:
        return replace(row, unmeasured="kind")
    if target.shape != golden.shape:
        return replace(row, unmeasured="shape")
    if not target.is_tensor:
        error = 0.0 if (target.type, target.text) == (golden.type, golden.text) else math.inf
        return replace(row, metrics={SCALED_ERROR: error})
    scaled = scaled_error(target, golden)
    if scaled is None:
        return replace(row, unmeasured="no value")
    return replace(row, metrics={**measure_statistics(target, golden), SCALED_ERROR: scaled})


def _judged(row: Row, judging: Judging, mode: DataMode) -> tuple[Outcome, str]:
    (judged,) = judging.policy.rule.judge("", mode, [row])
    return judged.outcome, "; ".join(judged.messages)


def _by_standard(one: torch.Tensor, other: torch.Tensor, name: str) -> tuple[Outcome, str, Verdict]:
    verdict = judge(one, other, standard=name)
    return verdict.outcome, verdict.reason, verdict
