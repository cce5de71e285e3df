"""The single-machine check of msprobe: cosine, then greatest absolute error, then shares of relative errors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from msprobe_standards.dtypes import float_format, real_dtype
from msprobe_standards.protocol import Standard, nonfinite
from msprobe_standards.reasons import at_worst
from msprobe_standards.verdict import Verdict

if TYPE_CHECKING:
    from msprobe_standards.metrics import Metrics

_WIDE = (torch.float32, torch.float64)


@dataclass(frozen=True)
class Cascade(Standard):
    """The verdict of msprobe's ``run_ut`` on one output, the same for all APIs (mindstudio-probe 1.2.2).

    1. The cosine must be above ``min_cosine``. It is not asked for one element and where both sides are zero; zeros on
       one side only fail.
    2. A greatest absolute error below ``max_abs_err`` passes, unless the errors are as large as the values themselves
       (``max_small_error`` of max(|golden|, mean |golden|), root mean square): msprobe passes any result, however
       wrong, whose values are small enough.
    3. The shares of elements with a relative error below 0.01 and 0.001 (float32, float64: 0.001 and 0.0001) must be
       above 0.99 and 0.999 (0.999 and 0.9999). Missing the first fails, missing the second warns.

    The limits are msprobe's but for ``max_small_error`` (docs/standards-reference.md, "Where the constants come from").

    Args:
        min_cosine: The cosine that has to be exceeded.
        max_abs_err: The greatest absolute error below which an output passes.
        max_small_error: The allowed root mean square of such errors, relative to max(|golden|, mean |golden|).
    """

    min_cosine: float = 0.99
    max_abs_err: float = 0.001
    max_small_error: float = 0.5

    name: ClassVar[str] = "cascade"
    wanted: ClassVar[frozenset[str]] = frozenset(
        {
            "cosine_sim",
            "rel_err_hundredth",
            "rel_err_thousandth",
            "rel_err_ten_thousandth",
            "rms_scaled_error",
        }
    )
    exact_passes: ClassVar[bool] = False
    scalars_exact: ClassVar[bool] = True

    def decide(self, metrics: Metrics, baseline_metrics: Metrics | None) -> Verdict:
        """Run the steps in order."""
        if metrics["nonfinite_mismatch"]:
            return nonfinite(self.name, metrics, {})
        cosine = metrics["cosine_sim"]
        error = metrics["max_abs_err"]
        if math.isnan(cosine) and error > 0:
            one_sided = "one of target and golden is all zeros, the other is not"
            return Verdict("fail", self.name, one_sided, {"max_abs_err": error}, {"max_abs_err": 0.0}, math.inf)
        if metrics.numel > 1 and cosine <= self.min_cosine:
            return self._at_least(metrics, "fail", "cosine_sim", self.min_cosine)
        small = metrics["rms_scaled_error"] * float_format(metrics.dtype).unit_roundoff
        if error < self.max_abs_err and small < self.max_small_error:
            limits = {"max_abs_err": self.max_abs_err}
            return Verdict("pass", self.name, "", {"max_abs_err": error}, limits, error / self.max_abs_err)
        if real_dtype(metrics.dtype) in _WIDE:
            must, should = ("rel_err_thousandth", 0.999), ("rel_err_ten_thousandth", 0.9999)
        else:
            must, should = ("rel_err_hundredth", 0.99), ("rel_err_thousandth", 0.999)
        if not metrics[must[0]] > must[1]:
            return self._at_least(metrics, "fail", *must)
        return self._at_least(metrics, "pass" if metrics[should[0]] > should[1] else "warn", *should)

    def _at_least(self, metrics: Metrics, outcome: str, name: str, limit: float) -> Verdict:
        value = metrics[name]
        margin = (1 - value) / (1 - limit)
        measured, limits = {name: value}, {name: limit}
        if outcome == "pass":
            return Verdict("pass", self.name, "", measured, limits, min(margin, 1.0))
        reason = f"{name} {value:.6g} (above {limit:g} allowed){at_worst(metrics)}"
        return Verdict("warn" if outcome == "warn" else "fail", self.name, reason, measured, limits, max(margin, 1.0))
