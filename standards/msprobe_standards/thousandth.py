"""Thousandth: nearly all elements are within a thousandth of the golden value. For convolutions in msprobe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from msprobe_standards.protocol import Standard, nonfinite
from msprobe_standards.reasons import at_worst
from msprobe_standards.verdict import Verdict

if TYPE_CHECKING:
    from msprobe_standards.metrics import Metrics


@dataclass(frozen=True)
class Thousandth(Standard):
    """At least ``min_share`` of the elements have a relative error below 0.001; both are mindstudio-probe 1.2.2's.

    Args:
        min_share: The share that is required.
    """

    min_share: float = 0.999

    name: ClassVar[str] = "thousandth"
    wanted: ClassVar[frozenset[str]] = frozenset({"rel_err_thousandth"})

    def decide(self, metrics: Metrics, baseline_metrics: Metrics | None) -> Verdict:
        """Judge the share."""
        limits = {"rel_err_thousandth": self.min_share}
        if metrics["nonfinite_mismatch"]:
            return nonfinite(self.name, metrics, limits)
        share = metrics["rel_err_thousandth"]
        margin = (1 - share) / (1 - self.min_share) if self.min_share < 1 else float(share < 1)
        if share >= self.min_share:
            return Verdict("pass", self.name, "", {"rel_err_thousandth": share}, limits, min(margin, 1.0))
        over = round((1 - share) * metrics.numel)
        reason = (
            f"{over} of {metrics.numel} elements ({100 * (1 - share):.3g} %) differ by a thousandth or more "
            f"({100 * (1 - self.min_share):.3g} % allowed){at_worst(metrics)}"
        )
        return Verdict("fail", self.name, reason, {"rel_err_thousandth": share}, limits, margin)
