"""The errors of one part of a pair, screened in the dtype of the part and returned as float64 has them.

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
"""Up to which relative error a difference is exact (Sterbenz: up to half, but the quotient that decides is rounded)."""

# A float with its mantissa bits cleared is the power of two below it.
_EXPONENT_BITS = {4: np.int32(0xFF << 23), 8: np.int64(0x7FF << 52)}
# Picking elements out costs more than looking at all of them where it is not a small share.
_FEW = 0.05
# So many of the first elements show most often whether they are many.
_SAMPLE = 1024


@dataclass(frozen=True, slots=True)
class Part:
    """The finite elements of a part, some of which differ.

    ``errors``, ``magnitudes`` and ``ratio`` are |t - g|, |g| and their quotient (NaN of two zeros), in one dtype,
    ``greatest`` and ``reach`` the maxima of the first and the last. The errors are off by at most ``slack`` of
    themselves.
    """

    target: Floats
    golden: Floats
    errors: Floats
    magnitudes: Floats
    ratio: Floats
    greatest: float
    reach: float

    @property
    def slack(self) -> float:
        """By how much of itself an error is off at most: 0 where the differences are exact."""
        return 0.0 if self.reach <= EXACT_BELOW or self.errors.dtype == np.float64 else SLACK

    def greatest_error(self) -> tuple[float, int]:
        """Return the greatest |t - g| and the first place that has it."""
        near = np.flatnonzero(self.errors >= self.greatest * (1 - self.slack))
        exact = self._exact_errors(near)
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

    def greatest_over_power(self, least: float, so_far: float) -> float:
        """Return the greatest |t - g| over the power of two below |g|, which is at least ``least``.

        Where that is not above ``so_far`` any number up to it may be returned. Overwrites ``ratio``.
        """
        # |g| is less than twice the power of two below it.
        near = self._few_from(so_far / 2 * (1 - self._slack_of_ratio))
        if near is None:
            over = _power_of_two(self.magnitudes, self.ratio)
            # Without ``least`` quotients of subnormal numbers are too large, or NaN where these are equal.
            if float(np.fmax.reduce(np.divide(self.errors, over, out=over))) * (1 + self.slack) <= so_far:
                return so_far
            over = _power_of_two(self.magnitudes, self.ratio)
            np.divide(self.errors, np.maximum(over, least, out=over), out=over)
            near = np.flatnonzero(over >= over.max() * (1 - self.slack))
        golden = self.golden[near].astype(np.float64)
        power = _power_of_two(golden, np.empty(near.size))
        return float((self._exact_errors(near) / np.maximum(power, least)).max(initial=0.0))

    def _few_from(self, least: float) -> Places | None:
        """Return which elements have a quotient of at least so much, None where they are many."""
        for ratio in (self.ratio[:_SAMPLE], self.ratio):
            far = ratio >= least
            if np.count_nonzero(far) > _FEW * far.size:
                return None
        return np.flatnonzero(far)

    @property
    def _slack_of_ratio(self) -> float:
        return SLACK if self.ratio.dtype == np.float32 else 0.0

    def _exact_ratio(self, at: Places) -> Doubles:
        """Return the relative errors of some elements as float64 has them."""
        return self._exact_errors(at) / np.abs(self.golden[at].astype(np.float64))

    def _exact_errors(self, at: Places) -> Doubles:
        """Return |t - g| of some elements as float64 has it."""
        return np.abs(self.target[at].astype(np.float64) - self.golden[at].astype(np.float64))


def _power_of_two(x: Floats, out: Floats) -> Floats:
    """Return the power of two below the magnitude of each, 0 for subnormal numbers."""
    mask = _EXPONENT_BITS[x.itemsize]
    np.bitwise_and(x.view(mask.dtype), mask, out=out.view(mask.dtype))
    return out
