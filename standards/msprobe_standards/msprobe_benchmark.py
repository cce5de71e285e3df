"""The benchmark comparison of msprobe: error ratios against a GPU's, over floors that do not depend on the output."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from msprobe_standards.dtypes import real_dtype
from msprobe_standards.protocol import Standard, nonfinite, within
from msprobe_standards.verdict import Verdict

if TYPE_CHECKING:
    from msprobe_standards.metrics import Metrics

# mindstudio-probe 1.2.2; docs/standards-reference.md, "Metrics", has them as least divisors.
_FLOORS = {torch.float16: 2**-11, torch.bfloat16: 2**-8}


def ratio_floor(dtype: torch.dtype) -> float:
    """Return the least error that msprobe divides by (its ``min_err``), one number for every metric of a dtype."""
    return _FLOORS.get(real_dtype(dtype), 2**-14)


def _ratio(error: float, base: float, floor: float) -> float:
    """Return the ratio of two errors; a baseline's error of NaN or inf allows nothing."""
    return error / max(base, floor) if math.isfinite(base) else math.inf


@dataclass(frozen=True)
class MsprobeBenchmark(Standard):
    """Ratios of the target's metrics to the baseline's, each at most its limit (mindstudio-probe 1.2.2).

    The divisor is at least 2^-11 for float16, 2^-8 for bfloat16 and 2^-14 for all others, whatever the scale of
    the output. The limit of the RMSE is exclusive: msprobe's RMSE is larger than the true one by a factor of about
    1.00005, so a ratio on the limit fails there.

    Args:
        small_value_err_ratio: The allowed ratio of the shares of wrong small elements.
        rmse: The ratio of the root mean square errors that must not be reached.
        max_rel_error: The allowed ratio of the greatest relative errors.
        mean_rel_error: The allowed ratio of the mean relative errors.
    """

    small_value_err_ratio: float = 2.0
    rmse: float = 2.0
    max_rel_error: float = 10.0
    mean_rel_error: float = 2.0

    name: ClassVar[str] = "msprobe_benchmark"
    wanted: ClassVar[frozenset[str]] = frozenset({"small_value_err_ratio", "rmse", "max_rel_error", "mean_rel_error"})
    needs_baseline: ClassVar[bool] = True

    def settled(self, metrics: Metrics) -> Verdict | None:
        """Pass what is within the limits even of a perfect baseline."""
        if metrics["nonfinite_mismatch"]:
            return nonfinite(self.name, metrics, self._limits())
        verdict = self._judge(metrics, {})
        return verdict if verdict.outcome == "pass" else None

    def decide(self, metrics: Metrics, baseline_metrics: Metrics | None) -> Verdict:
        """Judge the ratios; without a baseline there is nothing to judge by."""
        if baseline_metrics is None:
            return Verdict("skip", self.name, "no baseline: msprobe's benchmark comparison needs a second result")
        return self._judge(metrics, baseline_metrics)

    def _limits(self) -> dict[str, float]:
        limits = {name: getattr(self, name) for name in sorted(self.wanted)}
        return limits | {"rmse": math.nextafter(self.rmse, 0.0)}

    def _judge(self, metrics: Metrics, baseline: Metrics | dict[str, float]) -> Verdict:
        floor = ratio_floor(metrics.dtype)
        limits = self._limits()
        ratios = {name: _ratio(metrics[name], baseline.get(name, 0.0), floor) for name in limits}
        return within(self.name, metrics, limits, ratios)
