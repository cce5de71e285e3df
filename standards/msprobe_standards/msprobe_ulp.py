"""The ULP comparison of msprobe: few elements beyond a threshold, or fewer than on a GPU."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from msprobe_standards.dtypes import real_dtype
from msprobe_standards.msprobe_benchmark import ratio_floor
from msprobe_standards.protocol import Standard, nonfinite
from msprobe_standards.reasons import at_worst
from msprobe_standards.verdict import Verdict

if TYPE_CHECKING:
    from msprobe_standards.metrics import Metrics


@dataclass(frozen=True)
class MsprobeUlp(Standard):
    """Passes on any one of: mean error, share of elements over the threshold, that share's ratio to the baseline's.

    The threshold is 32 ULP for float32 and float64, else 1. All limits are exclusive (mindstudio-probe 1.2.2).

    Args:
        mean_ulp_error: The limit of the mean error of float32 and float64, which is no criterion for other dtypes.
        wide_share: The limit of the share of float32 and float64.
        narrow_share: The limit of the share of other dtypes.
    """

    mean_ulp_error: float = 64.0
    wide_share: float = 0.05
    narrow_share: float = 0.001

    name: ClassVar[str] = "msprobe_ulp"
    wanted: ClassVar[frozenset[str]] = frozenset({"max_ulp_error", "mean_ulp_error", "ulp_error_proportion"})
    needs_baseline: ClassVar[bool] = True
    exact_passes: ClassVar[bool] = False

    def settled(self, metrics: Metrics) -> Verdict | None:
        """Fail NaN and inf elements that no baseline excuses."""
        if metrics["nonfinite_mismatch"]:
            return nonfinite(self.name, metrics, self._limits(metrics))
        return None

    def decide(self, metrics: Metrics, baseline_metrics: Metrics | None) -> Verdict:
        """Judge by the target's own errors, then by the baseline's share; a baseline with wrong NaN or inf fails."""
        if settled := self.settled(metrics):
            return settled
        limits = self._limits(metrics)
        measured = {name: metrics[name] for name in limits}
        margin = min(measured[name] / limit for name, limit in limits.items())
        if baseline_metrics is not None and baseline_metrics["nonfinite_mismatch"]:
            reason = "the baseline has NaN or inf where golden has none, or the reverse; the target has not"
            return Verdict("fail", self.name, reason, measured, limits, math.inf)
        if margin < 1:
            return Verdict("pass", self.name, "", measured, limits, margin)
        numbers = (f"{name} {measured[name]:.4g} (below {limits[name]:g} allowed)" for name in limits)
        reason = f"{' and '.join(numbers)}{at_worst(metrics)}"
        if baseline_metrics is None:
            return Verdict("fail", self.name, f"{reason}; no baseline to compare with", measured, limits, margin)
        share, base = metrics["ulp_error_proportion"], baseline_metrics["ulp_error_proportion"]
        if share < max(base, ratio_floor(metrics.dtype)):
            reason = f"{share:.3g} of the elements are over the threshold, fewer than the baseline's {base:.3g}"
            return Verdict("pass", self.name, reason, measured, limits, 1.0)
        return Verdict("fail", self.name, f"{reason}; the baseline's share is {base:.4g}", measured, limits, margin)

    def _limits(self, metrics: Metrics) -> dict[str, float]:
        if real_dtype(metrics.dtype) in (torch.float32, torch.float64):
            return {"mean_ulp_error": self.mean_ulp_error, "ulp_error_proportion": self.wide_share}
        return {"ulp_error_proportion": self.narrow_share}
