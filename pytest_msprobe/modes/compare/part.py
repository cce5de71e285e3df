"""The errors of one part of a pair, screened in the dtype of the part and told as float64 has them.

Numbers that float32 holds are subtracted and divided in it, at half the memory and twice as many at once as in float64.
That only says where a greatest error may be, and which elements are near a limit: these are computed in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32] | NDArray[np.float64]
    Doubles = NDArray[np.float64]
    Places = NDArray[np.intp]

SLACK = 2.0**-21
"""By how much of itself what float32 says of an error is off at most.

A difference and a quotient in it are off by 2**-24 each, and limits are rounded to float32 as well.
"""
EXACT_BELOW = 0.25
"""Up to which relative error a difference is exact (Sterbenz: up to half, but the quotient that tells is rounded)."""

# A float with its mantissa bits cleared is the power of two below it.
_EXPONENT_BITS = {4: np.int32(0xFF << 23), 8: np.int64(0x7FF << 52)}
# Picking elements out costs more than looking at all of them where it is not a small share.
_FEW = 0.05


@dataclass(frozen=True, slots=True)
class Part:
    """The finite elements of a part, some of which differ.

    ``errors``, ``magnitudes`` and ``ratio`` are |t - g|, |g| and their quotient (NaN of two zeros), in one dtype,
    ``greatest`` and ``reach`` the maxima of the first and the last. The errors are off by at most ``slack`` of
    themselves. ``golden`` and ``difference`` are g and t - g in float64.
    """

    errors: Floats
    magnitudes: Floats
    ratio: Floats
    greatest: float
    reach: float
    slack: float
    golden: Doubles
    difference: Doubles

    def greatest_error(self) -> tuple[float, int]:
        """Return the greatest |t - g| and the first place that has it."""
        near = np.flatnonzero(self.errors >= self.greatest * (1 - self.slack))
        exact = np.abs(self.difference[near])
        at = int(exact.argmax())
        return float(exact[at]), int(near[at])

    def greatest_ratio(self) -> float:
        """Return the greatest |t - g| / |g|."""
        near = np.flatnonzero(self.ratio >= self.reach * (1 - self._slack_of_ratio))
        return float(self._exact_ratio(near).max())

    def beyond(self, limits: Sequence[float]) -> list[int]:
        """Return how many elements have a relative error of each limit or more."""
        ratio, slack = self.ratio, self._slack_of_ratio
        least = min(limits) * (1 - slack)
        if self.reach < least:
            return [0 for _ in limits]
        far = ratio >= least
        total = int(np.count_nonzero(far))
        if total < _FEW * ratio.size:
            exact = self._exact_ratio(np.flatnonzero(far))
            return [int(np.count_nonzero(exact >= limit)) for limit in limits]
        counts = []
        for limit in limits:
            low, high = limit * (1 - slack), limit * (1 + slack)
            reached = total if low == least else int(np.count_nonzero(ratio >= low))
            certain = int(np.count_nonzero(ratio >= high)) if slack else reached
            if reached > certain:
                near = np.flatnonzero((ratio >= low) & (ratio < high))
                certain += int(np.count_nonzero(self._exact_ratio(near) >= limit))
            counts.append(certain)
        return counts

    def greatest_over_power(self, least: Floats, so_far: float) -> float:
        """Return the greatest |t - g| over the power of two below |g|, which is at least ``least`` (one number, often).

        Where that is not above ``so_far`` it may be told rounded. Overwrites ``ratio``.
        """
        over = _power_of_two(self.magnitudes, self.ratio)
        # np.maximum takes three times as long beside a scalar.
        np.divide(self.errors, np.maximum(over, least[: over.size], out=over), out=over)
        greatest = float(over.max())
        if greatest * (1 + self.slack) <= so_far:
            return greatest
        near = np.flatnonzero(over >= greatest * (1 - self.slack))
        power = _power_of_two(self.golden[near], np.empty(near.size))
        return float((np.abs(self.difference[near]) / np.maximum(power, least[0])).max())

    @property
    def _slack_of_ratio(self) -> float:
        return SLACK if self.ratio.dtype == np.float32 else 0.0

    def _exact_ratio(self, at: Places) -> Doubles:
        """Return the relative errors of some elements as float64 has them."""
        return np.abs(self.difference[at]) / np.abs(self.golden[at])


def widened(x: Floats, buffer: Doubles) -> Doubles:
    """Return numbers as float64, in a buffer where they are not."""
    if x.dtype != np.float64:
        np.copyto(buffer[: x.size], x)
        return buffer[: x.size]
    return x  # type: ignore[return-value]


def _power_of_two(x: Floats, out: Floats) -> Floats:
    """Return the power of two below each magnitude, 0 for subnormal numbers."""
    mask = _EXPONENT_BITS[x.itemsize]
    np.bitwise_and(x.view(mask.dtype), mask, out=out.view(mask.dtype))
    return out
