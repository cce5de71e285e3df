"""Exemptions: failures that something else than the target explains, as a baseline that errs as much does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from msprobe_standards.protocol import Standard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from msprobe_standards.dtypes import Bounds
    from msprobe_standards.metrics import Metrics
    from msprobe_standards.verdict import Verdict

_SHARES = ("_rate", "_share", "_proportion")


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
