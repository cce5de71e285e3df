"""Absolute threshold: no element beyond fixed absolute and relative limits. For single-rounding arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from msprobe_standards.protocol import Standard, within

if TYPE_CHECKING:
    from msprobe_standards.metrics import Metrics
    from msprobe_standards.verdict import Verdict


@dataclass(frozen=True)
class AbsoluteThreshold(Standard):
    """Limits on the shares of wrong elements among the non-finite, the normal and the small ones (default: none).

    `msprobe_bounds` says which elements are small, and which are wrong.

    Args:
        inf_nan_error_ratio: The allowed share of wrong NaN, inf and overflowing elements.
        rel_err_ratio: The allowed share of wrong normal elements.
        abs_err_ratio: The allowed share of wrong small elements.
    """

    inf_nan_error_ratio: float = 0.0
    rel_err_ratio: float = 0.0
    abs_err_ratio: float = 0.0

    name: ClassVar[str] = "absolute_threshold"
    wanted: ClassVar[frozenset[str]] = frozenset({"inf_nan_error_ratio", "rel_err_ratio", "abs_err_ratio"})

    def decide(self, metrics: Metrics, baseline_metrics: Metrics | None) -> Verdict:
        """Judge the three shares."""
        limits = {name: getattr(self, name) for name in ("inf_nan_error_ratio", "rel_err_ratio", "abs_err_ratio")}
        return within(self.name, metrics, limits)
