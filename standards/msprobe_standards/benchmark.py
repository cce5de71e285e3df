"""Benchmark: the target may err about as much as an independent result of the same precision does."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from msprobe_standards.dtypes import float_format, msprobe_bounds, roundoffs_allowed
from msprobe_standards.protocol import Standard, bias, shared, within

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from msprobe_standards.dtypes import Bounds
    from msprobe_standards.metrics import Metrics
    from msprobe_standards.verdict import Verdict

# docs/standards-reference.md, "Benchmark", has the formulas that these stand in, "Where the constants come from" their
# sources.
# The ratio of two root mean squares of n normal errors scatters by 1/√n: 8 of its standard deviations. Of 4 elements it
# exceeds the limit, 2 (1 + 8/√4), once in 3 000 times; with 4 deviations it would once in 500.
_SMALL_SAMPLE = 8.0
# 0.8 % of normal values with an error of one floor of the scale are in the tail by chance: about four times that.
_TAIL_NOISE = 0.03
# A choice: how many times the baseline's own tail a target's may be.
_TAIL_RATIO = 4.0
# A choice, where there is no baseline: in 16 bits 2.4 u, as 17 partial sums err that are rounded each, √17 · 0.58 u.
_UNAIDED_FLOORS = 4.0
# A choice: errors of sums relate to the scale. Of normal values the smallest 16 % are below a quarter of it; with
# them the unbiased variance of a layer norm passes in bfloat16.
_SHARED_FLOOR = 0.25
# A choice, where small elements are exact: steps of a softmax in bfloat16 may be off by e^0.25, 28 %.
_HALF = 0.5
# The upper limit, at 95 %, of how many there are of which none was seen: exp(-3) = 5 %.
_NONE_SEEN = 3.0
# Of a count; a normal deviation exceeds 7 of them with a probability of 1e-12.
_STANDARD_ERRORS = 7.0
# A choice: that of `Benchmark.max_rms_ratio`.
_DRIFT_RATIO = 2.0
# Correct rounding errs by up to one unit roundoff, which is therefore the least error that a baseline is taken to have.
_CORRECT_ROUNDING = 1.0
_LEAST_ROUNDING = 1.0
_SCALED = frozenset({"scale", "max_scaled_error", "rms_scaled_error", "gain_error", "gain_z", "tail_share"})


@dataclass(frozen=True)
class Benchmark(Standard):
    """Compares the target's errors with the baseline's, over a floor tied to unit roundoff and output scale.

    Errors are relative to max(|golden|, mean |golden|) and counted in unit roundoffs of the target's dtype. Each limit
    is a ratio to the baseline's error or to ``floor``, whichever is greater; a ``floor`` of 0 is the dtype's own
    (`msprobe_standards.dtypes.roundoffs_allowed`).

    * root mean square: ``max_rms_ratio`` times, and (1 + 8 / sqrt(n)) wider for n elements, because the
      ratio of two small samples of equally good results scatters;
    * greatest error: ``max_error_ratio`` times;
    * drift of the magnitudes: ``max_bias`` unit roundoffs beyond twice the baseline's, where it is statistically
      certain; truncation makes it about 0.67. With a floor of one or more it is only held to the limit of the root
      mean square;
    * share of small elements that are wrong in all digits (``tail_share``): four times, and 0.03 for chance;
    * error that elements with neighbouring golden values share: ``max_shared`` unit roundoffs, where it is
      statistically certain; the default, 0, does not judge it.

    ``max_baseline`` caps what the CPU's result counts for as a baseline: so many roundings of the result, or of the
    inputs where golden moves further by those (`credible`). A kernel of the CPU that adds up in 16 bits errs by more.

    Where there is no baseline, or its NaN and inf disagree with the golden result, the limits are those of a baseline
    that errs by four floors, and the reason says so.

    Args:
        max_rms_ratio: The allowed ratio of the root mean squares.
        max_error_ratio: The allowed ratio of the greatest errors.
        max_bias: The allowed drift of the magnitudes, in unit roundoffs.
        floor: The least error that counts as the baseline's, in unit roundoffs; 0: the dtype's own.
        max_shared: The allowed error of neighbours, in unit roundoffs; 0: not judged.
        max_baseline: The greatest error of the CPU that counts as the baseline's, in roundings; 0: whatever it is.
        exact_tail: Whether nothing cancels, as in a softmax, so that elements far below the scale count in the tail.
    """

    max_rms_ratio: float = 2.0
    max_error_ratio: float = 10.0
    max_bias: float = 0.5
    floor: float = 0.0
    max_shared: float = 0.0
    max_baseline: float = 0.0
    exact_tail: bool = False

    name: ClassVar[str] = "benchmark"
    needs_baseline: ClassVar[bool] = True

    @property
    def wanted(self) -> frozenset[str]:  # type: ignore[override]
        """The scaled errors, and what neighbours share where it is judged."""
        return _SCALED | {"shared_error", "shared_z"} if self.max_shared else _SCALED

    def bounds(self, dtype: torch.dtype) -> Bounds:
        """Leave small elements, whose errors relate to the scale, out of what neighbours share; see ``exact_tail``."""
        bounds = msprobe_bounds(dtype)
        if self.exact_tail:
            tail = _HALF if dtype.itemsize <= 2 else bounds.tail
            # A device may flush what is smaller to zero.
            bounds = replace(bounds, tail_noise=float_format(dtype).min_normal, tail=tail)
        return replace(bounds, shared_floor=_SHARED_FLOOR) if self.max_shared else bounds

    def settled(self, metrics: Metrics) -> Verdict | None:
        """Pass what stays under the floors; whatever does not is for the baseline to explain."""
        verdict = self._judge(metrics, rms=0.0, greatest=0.0, drift=0.0, tail=0.0, at_most=True)
        return verdict if verdict.outcome == "pass" or metrics["nonfinite_mismatch"] else None

    def credible(self, baseline_metrics: Metrics, explained: Sequence[Metrics] = ()) -> Metrics:
        """Return the baseline's errors as far as ``max_baseline`` roundings of the result or the inputs explain them.

        ``explained`` are the metrics of golden for inputs that moved by one rounding unit.
        """
        base = baseline_metrics
        if not self.max_baseline or base["nonfinite_mismatch"]:
            return base
        comparable = [metrics for metrics in explained if not metrics["nonfinite_mismatch"]]

        def share(name: str) -> float:
            one = max([_LEAST_ROUNDING, *(metrics[name] for metrics in comparable)])
            return min(1.0, self.max_baseline * one / base[name]) if base[name] else 1.0

        rms, greatest = share("rms_scaled_error"), share("max_scaled_error")
        if min(rms, greatest) == 1.0:
            return base
        less = {name: value * greatest for name, value in base.items() if name.startswith("max_")}
        less |= {name: base[name] * rms for name in ("rms_scaled_error", "gain_error")}
        return replace(base, values_by_name={**base, **less})

    def decide(self, metrics: Metrics, baseline_metrics: Metrics | None) -> Verdict:
        """Judge root mean square, greatest error, bias and tail against the baseline's."""
        if baseline_metrics is not None and not baseline_metrics["nonfinite_mismatch"]:
            base = baseline_metrics
            return self._judge(
                metrics, base["rms_scaled_error"], base["max_scaled_error"], bias(base), base["tail_share"]
            )
        floors = _UNAIDED_FLOORS * self._floor(metrics)
        verdict = self._judge(metrics, rms=floors, greatest=floors, drift=0.0, tail=0.0)
        if metrics["nonfinite_mismatch"]:
            return verdict
        why = "no baseline" if baseline_metrics is None else "the baseline itself has wrong NaN or inf elements"
        note = f"judged without a baseline ({why}): the limits assume one that errs by {floors:.3g} unit roundoffs"
        return replace(verdict, reason=f"{verdict.reason}; {note}" if verdict.reason else note)

    def _floor(self, metrics: Metrics) -> float:
        return self.floor or roundoffs_allowed(metrics.dtype)

    def _judge(
        self, metrics: Metrics, rms: float, greatest: float, drift: float, tail: float, *, at_most: bool = False
    ) -> Verdict:
        floor, n = self._floor(metrics), metrics.numel
        rms_limit = self.max_rms_ratio * (1 + _SMALL_SAMPLE / math.sqrt(n)) * max(rms, floor)
        limits = {
            "rms_scaled_error": rms_limit,
            "max_scaled_error": self.max_error_ratio * max(greatest, floor, _CORRECT_ROUNDING),
            # Where partial sums are rounded, the elements of a row share the errors of its sum.
            "gain_error": _DRIFT_RATIO * drift + self.max_bias if floor < 1 else rms_limit,
        }
        # Above 1 it would limit nothing.
        more = min(_TAIL_RATIO * tail, (1 + tail) / 2)
        tail_limit = more + _TAIL_NOISE + _STANDARD_ERRORS * math.sqrt(tail / n) + _NONE_SEEN / n
        if tail_limit < 1:
            limits["tail_share"] = tail_limit
        measured = {name: metrics[name] for name in limits} | {
            "gain_error": bias(metrics),
            "tail_share": metrics["tail_share"],
        }
        if self.max_shared:
            limits["shared_error"] = self.max_shared
            measured["shared_error"] = shared(metrics)
        return within(self.name, metrics, limits, measured, at_most=at_most)
