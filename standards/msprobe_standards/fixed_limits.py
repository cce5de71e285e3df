"""Standards whose limits are fixed: the error in ULP, shares of wrong elements, the balance of errors, equality.

A policy chooses among them by how an API computes: `Ulp` is for elementwise arithmetic and functions,
`AbsoluteThreshold` for arithmetic that rounds once, `AccumulativeError` for long sums,
`BinaryConsistency` for APIs that move, select, compare or round values. `NotCompared` leaves outputs out on purpose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import torch

from msprobe_standards.dtypes import Bounds, msprobe_bounds, real_dtype
from msprobe_standards.protocol import Standard, bias, shared, within
from msprobe_standards.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from msprobe_standards.metrics import Metrics


# mindstudio-probe 1.2.2, as all that docs/standards-reference.md, "Where the constants come from", calls msprobe's,
# by dtype; 2^-14 of others.
_BOUND = {torch.float16: 2**-8, torch.bfloat16: 2**-7}
_BALANCE = {torch.float16: 2**-20, torch.bfloat16: 2**-7}


@dataclass(frozen=True)
class Ulp(Standard):
    """No more than ``max_share`` of the elements is off by more than ``max_ulp`` units in the last place.

    Correct rounding to nearest has errors up to 0.5, truncation and faithful rounding up to 1. The unit is that of the
    golden value in the target's dtype, in the subnormal range that of the smallest normal value.
    ``docs/standards-reference.md``, "ULP", has the reasons of the limits.

    Args:
        max_ulp: The allowed error in units.
        max_share: The share of elements that may exceed it.
        scale_floor: The unit is wider below this share of the mean golden magnitude (0: nowhere), as an addition of a
            scaled operand may cancel.
        arriving_floor: The unit of gradients is wider below this share of the mean of those that arrive, as the
            gradient of a flat function is a difference of numbers near 1.
        least_magnitude: The unit is wider below this magnitude.
        max_bias: The allowed drift of the magnitudes, in unit roundoffs; 0: not judged.
        max_shared: The error that elements with neighbouring golden values may share, in unit roundoffs; 0: not judged.
    """

    max_ulp: float = 2.0
    max_share: float = 0.0
    scale_floor: float = 0.0
    arriving_floor: float = 0.0
    least_magnitude: float = 0.0
    max_bias: float = 0.0
    max_shared: float = 0.0

    name: ClassVar[str] = "ulp"

    @property
    def wanted(self) -> frozenset[str]:  # type: ignore[override]
        """The ULP metrics, and those of the bias and of what neighbours share where it is judged."""
        metrics = {"max_ulp_error", "ulp_error_proportion"}
        if self.max_bias:
            metrics |= {"gain_error", "gain_z"}
        if self.max_shared:
            metrics |= {"shared_error", "shared_z"}
        return frozenset(metrics)

    def bounds(self, dtype: torch.dtype) -> Bounds:
        """Count the elements above ``max_ulp``."""
        floors = {"ulp_floor": self.scale_floor, "ulp_least": self.least_magnitude}
        return replace(msprobe_bounds(dtype), ulp=self.max_ulp, **floors)

    def for_gradients(self, arriving: Callable[[], float]) -> Standard:
        """Return this standard with a least magnitude that is a share of those of arriving gradients."""
        if not self.arriving_floor:
            return self
        least = max(self.least_magnitude, self.arriving_floor * arriving())
        return replace(self, least_magnitude=least) if math.isfinite(least) else self

    def decide(self, metrics: Metrics, baseline_metrics: Metrics | None) -> Verdict:
        """Judge the greatest error, or the share above ``max_ulp`` where one is allowed."""
        name = "ulp_error_proportion" if self.max_share else "max_ulp_error"
        limits = {name: self.max_share or self.max_ulp}
        measured = {name: metrics[name]}
        if self.max_bias:
            limits["gain_error"] = self.max_bias
            measured["gain_error"] = bias(metrics)
        if self.max_shared:
            limits["shared_error"] = self.max_shared
            measured["shared_error"] = shared(metrics)
        return within(self.name, metrics, limits, measured, metrics["ulp_error_proportion"])


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


@dataclass(frozen=True)
class AccumulativeError(Standard):
    """Limits on absolute error up to magnitude 1, on relative error above it, and on the error balance.

    Limits of 0 mean the dtype's own: 2^-8 and 2^-20 for float16, 2^-7 and 2^-7 for bfloat16, 2^-11 and 2^-14 for all
    others (mindstudio-probe 1.2.2).

    Args:
        bound: The allowed absolute error up to magnitude 1, and relative error above it.
        eb: The allowed error balance.
    """

    bound: float = 0.0
    eb: float = 0.0

    name: ClassVar[str] = "accumulative_error"
    wanted: ClassVar[frozenset[str]] = frozenset({"inf_nan_error_ratio", "rel_err_ratio", "abs_err_ratio", "eb"})
    # Correct rounding may be unbalanced: the balance of bfloat16 counts against the unrounded golden result.
    exact_passes: ClassVar[bool] = False

    def bounds(self, dtype: torch.dtype) -> Bounds:
        """Return the one bound as absolute and as relative limit, with everything up to 1 as small."""
        bound = self.bound or _BOUND.get(real_dtype(dtype), 2**-11)
        return replace(msprobe_bounds(dtype), small_value=1.0, atol=bound, rtol=bound)

    def decide(self, metrics: Metrics, baseline_metrics: Metrics | None) -> Verdict:
        """Judge the three shares and the balance."""
        balance = self.eb or _BALANCE.get(real_dtype(metrics.dtype), 2**-14)
        limits = {"inf_nan_error_ratio": 0.0, "rel_err_ratio": 0.0, "abs_err_ratio": 0.0, "eb": balance}
        return within(self.name, metrics, limits)


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


@dataclass(frozen=True)
class NotCompared(Standard):
    """Skips every output; msprobe's comparison with a recorded baseline does so for float64 and complex outputs."""

    name: ClassVar[str] = "not_compared"
    wanted: ClassVar[frozenset[str]] = frozenset({"max_abs_err"})
    exact_passes: ClassVar[bool] = False
    judges_integers: ClassVar[bool] = True

    def decide(self, metrics: Metrics, baseline_metrics: Metrics | None) -> Verdict:
        """Return the skip."""
        return Verdict("skip", self.name, f"the policy does not compare {metrics.dtype} outputs")
