"""Failures that something else than the target explains: a baseline that errs as much, ties of rounding.

A 16-bit CPU baseline counts as far as a correct device could err (`credibly_decided`), and drift without ties is that
of the elements whose rounding was not a choice (`without_ties`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import torch

from msprobe_standards.dtypes import Bounds, float_format
from msprobe_standards.protocol import Standard

if TYPE_CHECKING:
    from msprobe_standards.metrics import Metrics
    from msprobe_standards.verdict import Verdict


_SHARES = ("_rate", "_share", "_proportion")

SAME_AS_CPU = "excused, the CPU's own kernel gives the same result, though no rounding explains its error"


@dataclass(frozen=True)
class Excused(Standard):
    """Judges by ``inner``; subclasses pass failures of it that they explain."""

    inner: Standard

    @property
    def name(self) -> str:  # type: ignore[override]
        """The inner standard's name: it is the one that judges."""
        return self.inner.name

    @property
    def wanted(self) -> frozenset[str]:  # type: ignore[override]
        """Return what the inner standard reads, and the greatest absolute error."""
        return self.inner.wanted | {"max_abs_err"}

    @property
    def needs_baseline(self) -> bool:  # type: ignore[override]
        """Return what the inner standard does."""
        return self.inner.needs_baseline

    @property
    def adopts_baseline(self) -> bool:  # type: ignore[override]
        """Return what the inner standard does."""
        return self.inner.adopts_baseline

    @property
    def exact_passes(self) -> bool:  # type: ignore[override]
        """Return what the inner standard does."""
        return self.inner.exact_passes

    @property
    def judges_integers(self) -> bool:  # type: ignore[override]
        """Return what the inner standard does."""
        return self.inner.judges_integers

    @property
    def scalars_exact(self) -> bool:  # type: ignore[override]
        """Return what the inner standard does."""
        return self.inner.scalars_exact

    def bounds(self, dtype: torch.dtype) -> Bounds:
        """Return what the inner standard does."""
        return self.inner.bounds(dtype)

    def for_gradients(self, arriving: Callable[[], float]) -> Standard:
        """Judge by what the inner standard becomes."""
        inner = self.inner.for_gradients(arriving)
        return self if inner is self.inner else replace(self, inner=inner)

    def settled(self, metrics: Metrics) -> Verdict | None:
        """Return what the inner standard does."""
        return self.inner.settled(metrics)

    def credible(self, baseline_metrics: Metrics, explained: Sequence[Metrics] = ()) -> Metrics:
        """Return what the inner standard does."""
        return self.inner.credible(baseline_metrics, explained)

    def decide(self, metrics: Metrics, baseline_metrics: Metrics | None) -> Verdict:
        """Return what the inner standard does."""
        return self.inner.decide(metrics, baseline_metrics)

    def weighed(self, verdict: Verdict, metrics: Metrics, moved: Callable[[float], Sequence[Metrics]]) -> Verdict:
        """Return what the inner standard does."""
        return self.inner.weighed(verdict, metrics, moved)


@dataclass(frozen=True)
class ExcusedByBaseline(Excused):
    """Judges by ``inner``, and passes a failure that the baseline shows as well.

    Some golden results in raised precision are legitimately out of the target's reach: ``nan_to_num`` replaces inf by
    another largest value, ``floor_divide`` rounds an almost whole quotient the other way, float16 overflows in between.
    A failure is excused where the greatest absolute error and every number that broke its limit are at most ``ratio``
    times the baseline's, and shares of elements at most the baseline's. NaN and inf that the target shares with the
    baseline, element by element, count as right; a baseline that has other wrong ones excuses nothing.

    Args:
        inner: The standard that judges.
        ratio: How many times the baseline's errors are excused.
    """

    ratio: float = 2.0  # docs/standards-reference.md, "Where the constants come from"

    needs_baseline: ClassVar[bool] = True
    adopts_baseline: ClassVar[bool] = True

    def settled(self, metrics: Metrics) -> Verdict | None:
        """Return the inner verdict but a failure: only that can depend on the baseline any more."""
        verdict = self.inner.settled(metrics)
        return None if verdict is None or verdict.outcome == "fail" else verdict

    def decide(self, metrics: Metrics, baseline_metrics: Metrics | None) -> Verdict:
        """Judge by the inner standard, then weigh a failure against the baseline's errors."""
        verdict = self.inner.decide(metrics, baseline_metrics)
        if verdict.outcome != "fail" or baseline_metrics is None:
            return verdict
        # A baseline with wrong NaN or inf has infinite errors: it would excuse whatever is wrong.
        if metrics["nonfinite_mismatch"] or baseline_metrics["nonfinite_mismatch"]:
            return verdict
        broken = [name for name, limit in verdict.limits.items() if not verdict.metrics[name] <= limit]
        if not all(
            abs(metrics[name]) <= (1.0 if name.endswith(_SHARES) else self.ratio) * abs(baseline_metrics[name])
            for name in (*broken, "max_abs_err")
        ):
            return verdict
        numbers = ", ".join(f"{name} {baseline_metrics[name]:.4g}" for name in broken)
        reason = f"excused, the baseline errs as much ({numbers}): {verdict.reason}"
        return replace(verdict, outcome="pass", reason=reason, margin=1.0)


def credibly_decided(
    standard: Standard, metrics: Metrics, baseline: Metrics, explained: Callable[[], Sequence[Metrics]]
) -> Verdict:
    """Judge by what counts of the CPU's errors (`Standard.credible`).

    A failure is judged again by what roundings of the inputs explain. Equal numbers are those of the CPU's own kernel.

    Args:
        standard: The standard.
        metrics: The metrics of the target.
        baseline: The metrics of the CPU's result.
        explained: Returns the metrics of golden for moved inputs; only called for a failure that they may excuse.

    Returns:
        The verdict.
    """
    counted = standard.credible(baseline)
    verdict = standard.decide(metrics, counted)
    if verdict.outcome != "fail" or counted is baseline:
        return verdict
    if dict(metrics) == dict(baseline):
        return replace(verdict, outcome="pass", reason=f"{SAME_AS_CPU}: {verdict.reason}", margin=1.0)
    if standard.decide(metrics, baseline).outcome == "fail":
        return verdict
    again = standard.decide(metrics, standard.credible(baseline, explained()))
    if again.outcome == "fail":
        return again
    reason = f"excused, roundings of the inputs explain what the baseline errs by: {verdict.reason}"
    return replace(verdict, outcome="pass", reason=reason, margin=1.0)


def is_drift_upward(verdict: Verdict, metrics: Metrics) -> bool:
    """Return whether a verdict fails by a drift away from zero, which ties alone may make."""
    if verdict.outcome != "fail" or "gain_error" not in verdict.metrics:
        return False
    return metrics["gain_error"] > 0 and verdict.metrics["gain_error"] > verdict.limits["gain_error"]


def without_ties(
    metrics: Metrics,
    target: torch.Tensor,
    golden: torch.Tensor,
    dtype: torch.dtype,
    measured: Callable[[torch.Tensor], Metrics],
) -> Metrics:
    """Return metrics whose drift is that of the elements that are not exact ties.

    Rounding ties away from zero is as near as rounding them to even, and drifts. A drift towards zero is left as it is:
    cutting off rounds ties that way too.

    Args:
        metrics: The metrics of all elements.
        target: The target's result.
        golden: The golden result, real numbers.
        dtype: The dtype that the target is rounded to.
        measured: Returns the metrics of another golden result.

    Returns:
        The metrics.
    """
    if golden.is_complex():
        return metrics
    form, exact = float_format(dtype), golden.double()
    exponent = torch.frexp(exact).exponent.clamp_min(torch.frexp(exact.new_tensor(form.min_normal)).exponent)
    half = torch.ldexp(torch.ones_like(exact), exponent - form.mantissa_bits - 2)
    is_tie = (target.double() - exact).abs() == half
    nearest = measured(torch.where(is_tie, target.to(golden.dtype), golden))
    drift = {name: nearest[name] for name in ("gain_error", "gain_z")}
    return replace(metrics, values_by_name={**metrics, **drift})
