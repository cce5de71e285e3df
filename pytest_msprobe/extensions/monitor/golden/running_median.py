"""The median over many series of how far they were apart so far, step by step, in little memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pytest_msprobe.extensions.monitor.golden.differences import Numbers

# Powers of two from below what float64 can distinguish to inf; bin 0 is for equal values.
_LOWEST, _BINS = -56, 64


class Pool:
    """Counts of differences at each step by powers of two, so that a median is known to a factor of two.

    10 000 steps take 2.6 MB, however many series come.
    """

    def __init__(self, steps: int) -> None:
        self._counts: NDArray[np.uint32] = np.zeros((steps, _BINS), np.uint32)
        self._median: Numbers | None = None

    def add(self, places: NDArray[np.intp], differences: Numbers) -> None:
        """Take a series: its largest differences so far, at the places of its steps."""
        with np.errstate(divide="ignore"):
            powers = np.ceil(np.log2(differences)) - _LOWEST
        self._median = None
        self._counts[places, np.clip(powers, 0, _BINS - 1).astype(np.intp)] += 1

    def median(self) -> Numbers:
        """Return the median at each step, rounded up to a power of two; 0 where most series are equal or absent."""
        if self._median is None:
            seen = np.cumsum(self._counts, axis=1, dtype=np.int64)
            bins = np.argmax(2 * seen >= seen[:, -1:], axis=1)
            self._median = np.where(bins > 0, np.exp2(bins.astype(np.float64) + _LOWEST), 0.0)
        return self._median
