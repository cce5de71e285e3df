"""ULP: the error counted in units of the golden value's last place. For elementwise arithmetic and functions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from msprobe_standards.dtypes import msprobe_bounds
from msprobe_standards.protocol import Standard, bias, shared, within

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from msprobe_standards.dtypes import Bounds
    from msprobe_standards.metrics import Metrics
    from msprobe_standards.verdict import Verdict


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
