"""Binary consistency: every element equals the golden one. For APIs that move, select, compare or round values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from msprobe_standards.protocol import Standard, within

if TYPE_CHECKING:
    from msprobe_standards.metrics import Metrics
    from msprobe_standards.verdict import Verdict


@dataclass(frozen=True)
class BinaryConsistency(Standard):
    """Pass where the target equals the golden result rounded to the target's dtype, NaN in place of NaN included.

    Args:
        cast_golden: Whether the golden result is rounded; the unrounded one, as in msprobe, fails every correct device
            where a golden value (a padding constant 0.1, say) is not representable in the target's dtype.
        max_abs_err: By how much integers may differ (msprobe 26 allows 1 for quantization).
    """

    cast_golden: bool = True
    max_abs_err: float = 0.0

    name: ClassVar[str] = "binary_consistency"
    judges_integers: ClassVar[bool] = True

    @property
    def wanted(self) -> frozenset[str]:  # type: ignore[override]
        """The one number that is judged."""
        if self.max_abs_err:
            return frozenset({"max_abs_err"})
        return frozenset({"cast_error_rate" if self.cast_golden else "error_rate"})

    @property
    def exact_passes(self) -> bool:  # type: ignore[override]
        """Only where the golden result is rounded."""
        return self.cast_golden

    def decide(self, metrics: Metrics, baseline_metrics: Metrics | None) -> Verdict:
        """Judge the share of unequal elements."""
        if self.max_abs_err:
            return within(self.name, metrics, {"max_abs_err": self.max_abs_err})
        rate = "cast_error_rate" if self.cast_golden else "error_rate"
        return within(self.name, metrics, {rate: 0.0}, wrong_share=metrics[rate])
