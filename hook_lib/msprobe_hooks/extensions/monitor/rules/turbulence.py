"""msprobe's rule: a value by the mean of the earlier ones."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Annotated, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.extensions.monitor.rules.rule import Detector, Limit


class Turbulence(msgspec.Struct, frozen=True):
    """A value exceeds the mean of the earlier ones by more than ``threshold`` times that mean.

    AnomalyTurbulence of msprobe: in 1.2.2 the mean is that of all earlier values, and where it is not positive a value
    must not lie below the bound; in 26.x (``decay`` 0.99) it is an exponential one of magnitudes. The first value is
    its own mean. NaN and inf do not enter the mean.
    """

    name: ClassVar[str] = "turbulence"

    threshold: Limit
    decay: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None = None

    def detector(self) -> Detector:
        """Return a detector with the mean of nothing."""
        return _TurbulenceDetector(self)

    def is_broken(self, values: NDArray[np.float64]) -> bool:
        """Judge all values."""
        if self.decay is not None:
            values = np.abs(values)
        # The mean before the first value is that value.
        means = np.fromiter(accumulate(values.tolist(), _Mean(self.decay), initial=math.nan), np.float64)[:-1]
        means = np.where(np.isnan(means), values, means)
        with np.errstate(invalid="ignore", over="ignore"):
            bounds = means * (1 + self.threshold)
            return bool(np.where(means > 0, values > bounds, values < bounds).any())

    def breaks(self, value: float, mean: float) -> bool:
        """Return whether a value breaks the bound that follows from the mean of the earlier ones."""
        bound = mean * (1 + self.threshold)
        return value > bound if mean > 0 else value < bound


class _Mean:
    """The mean after each value, called with the mean before it (NaN where there is none) and the value."""

    def __init__(self, decay: float | None) -> None:
        self._decay = decay
        self._count = 0

    def __call__(self, mean: float, value: float) -> float:
        if not math.isfinite(value):
            return mean
        self._count += 1
        if math.isnan(mean):
            return value
        if self._decay is None:
            return (mean * (self._count - 1) + value) / self._count
        return self._decay * mean + (1 - self._decay) * value


class _TurbulenceDetector:
    def __init__(self, rule: Turbulence) -> None:
        self._rule = rule
        self._mean_after = _Mean(rule.decay)
        self._mean = math.nan

    def feed(self, value: float) -> str | None:
        """Judge a value by the mean of the earlier ones, then let it enter."""
        judged = value if self._rule.decay is None else abs(value)
        mean = judged if math.isnan(self._mean) else self._mean
        self._mean = self._mean_after(self._mean, judged)
        if not self._rule.breaks(judged, mean):
            return None
        bound, side = mean * (1 + self._rule.threshold), "up" if mean > 0 else "down"
        kind = "mean" if self._rule.decay is None else "exponential mean of the magnitudes"
        return f"is {value:.6g}; allowed: {side} to {bound:.6g}; the {kind} of earlier steps is {mean:.6g}"
