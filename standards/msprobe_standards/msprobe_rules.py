"""The rules of msprobe's own checks, as its code decides: they judge what msprobe would.

`Cascade` is the single-machine check: cosine, then greatest absolute error, then shares of relative errors.
`MsprobeBenchmark` and `MsprobeUlp` compare with a GPU,
`Thousandth` is for convolutions, `MindsporeCheck` for MindSpore.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from msprobe_standards.dtypes import float_format, real_dtype
from msprobe_standards.protocol import Standard, at_worst, nonfinite, within
from msprobe_standards.verdict import Verdict

if TYPE_CHECKING:
    from msprobe_standards.metrics import Metrics


_WIDE = (torch.float32, torch.float64)

# mindstudio-probe 1.2.2; docs/standards-reference.md, "Metrics", has them as least divisors.
_FLOORS = {torch.float16: 2**-11, torch.bfloat16: 2**-8}


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


@dataclass(frozen=True)
class MindsporeCheck(Standard):
    """The cosine is above ``min_cosine`` and the greatest absolute error below ``max_abs_err``.

    msprobe's code has 0.001 for the latter, its manual 0.0001; the default is what the tool does (docs/standards.md,
    "mindspore-1.2"). The cosine counts as
    right where it is not defined: with zeros on one side msprobe's formula, (1e-8 + a b) / (1e-8 + |a| |b|), gives 1.
    """

    min_cosine: float = 0.99
    max_abs_err: float = 0.001

    name: ClassVar[str] = "mindspore_check"
    wanted: ClassVar[frozenset[str]] = frozenset({"cosine_sim", "max_rel_error"})
    exact_passes: ClassVar[bool] = False

    def decide(self, metrics: Metrics, baseline_metrics: Metrics | None) -> Verdict:
        """Judge the cosine, then the error; the relative error is shown only, as msprobe does."""
        if metrics["nonfinite_mismatch"]:
            return nonfinite(self.name, metrics, {})
        cosine, error = metrics["cosine_sim"], metrics["max_abs_err"]
        cosine = 1.0 if math.isnan(cosine) else cosine
        measured = {"cosine_sim": cosine, "max_abs_err": error, "max_rel_error": metrics["max_rel_error"]}
        limits = {"cosine_sim": self.min_cosine, "max_abs_err": self.max_abs_err}
        margin = max(_share(1 - cosine, 1 - self.min_cosine), _share(error, self.max_abs_err))
        problems = []
        if not cosine > self.min_cosine:
            problems.append(f"cosine_sim {cosine:.6g} (above {self.min_cosine:g} allowed)")
        if not error < self.max_abs_err:
            problems.append(f"max_abs_err {error:.4g} (below {self.max_abs_err:g} allowed)")
        if not problems:
            return Verdict("pass", self.name, "", measured, limits, min(margin, 1.0))
        reason = f"{'; '.join(problems)}{at_worst(metrics)}"
        return Verdict("fail", self.name, reason, measured, limits, max(margin, 1.0))


def _share(value: float, limit: float) -> float:
    if limit > 0:
        return value / limit
    return 0.0 if value <= limit else math.inf
