"""Rules that judge a value by itself."""

from __future__ import annotations

import math
from typing import ClassVar, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.extensions.monitor.rules.rule import Detector, Limit


class NotFinite(msgspec.Struct, frozen=True):
    """A value is NaN or, where ``inf`` is True, infinite, or its magnitude is above a threshold; AnomalyNan of 26.x."""

    name: ClassVar[str] = "nan"

    threshold: Limit | None = None
    inf: bool = True

    def detector(self) -> Detector:
        """Return itself: it remembers nothing."""
        return self

    def feed(self, value: float) -> str | None:
        """Judge one value."""
        if math.isnan(value):
            return "is NaN"
        if self.inf and math.isinf(value):
            return f"is {value}"
        if self.threshold is not None and abs(value) > self.threshold:
            return f"is {value:.6g}; allowed: a magnitude up to {self.threshold:.6g}"
        return None

    def is_broken(self, values: NDArray[np.float64]) -> bool:
        """Judge all values."""
        if np.isnan(values).any() or (self.inf and np.isinf(values).any()):
            return True
        return self.threshold is not None and bool((np.abs(values) > self.threshold).any())


#: By dtype: the least magnitude that rounds to infinity or NaN, and the largest that rounds to 0 (IEEE 754-2019, 4.3.1;
#: float8: the OCP's OFP8 specification, whose e4m3 has no infinity and NaN in place of the last number).
_RANGES: Final = {
    "float64": (math.inf, 0.0),
    "float32": ((2 - 2.0**-24) * 2.0**127, 2.0**-150),
    "bfloat16": ((2 - 2.0**-8) * 2.0**127, 2.0**-134),
    "float16": (65520.0, 2.0**-25),
    "float8_e5m2": (61440.0, 2.0**-17),
    "float8_e4m3fn": (464.0, 2.0**-10),
}

#: The dtypes whose range is known.
DTYPES: Final = tuple(_RANGES)


class Overflow(msgspec.Struct, frozen=True):
    """The magnitude of an extremum rounds to infinity in a dtype; for minima and maxima."""

    name: ClassVar[str] = "overflow"

    dtype: str

    def detector(self) -> Detector:
        """Return itself: it remembers nothing."""
        return self

    def feed(self, value: float) -> str | None:
        """Judge one value; one that is infinite already is `NotFinite`'s matter."""
        limit = _RANGES[self.dtype][0]
        if math.isfinite(value) and abs(value) >= limit:
            return f"is {value:.6g}, out of range of {self.dtype}; allowed: a magnitude below {limit:.6g}"
        return None

    def is_broken(self, values: NDArray[np.float64]) -> bool:
        """Judge all values."""
        magnitudes = np.abs(values)
        return bool(((magnitudes >= _RANGES[self.dtype][0]) & (magnitudes < math.inf)).any())


class Underflow(msgspec.Struct, frozen=True):
    """A norm is so small that every element rounds to 0 in a dtype, for none is larger than their norm."""

    name: ClassVar[str] = "underflow"

    dtype: str

    def detector(self) -> Detector:
        """Return itself: it remembers nothing."""
        return self

    def feed(self, value: float) -> str | None:
        """Judge one value; 0 itself loses nothing."""
        limit = _RANGES[self.dtype][1]
        if 0 < abs(value) <= limit:
            return f"is {value:.6g}, so every element is 0 in {self.dtype}; allowed: above {limit:.6g}"
        return None

    def is_broken(self, values: NDArray[np.float64]) -> bool:
        """Judge all values."""
        magnitudes = np.abs(values)
        return bool(((magnitudes > 0) & (magnitudes <= _RANGES[self.dtype][1])).any())
