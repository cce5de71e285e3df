"""The steps of a page, binned: curves keep each bin's least and greatest value, so that no spike is lost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_GREATEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Axis:
    """Bins of consecutive steps: ``starts`` holds the first step of each, ascending; ``last`` is the last step of all.

    Where steps are watched every so often or in bursts, each bin holds as many watched steps as the others.
    """

    starts: NDArray[np.int64]
    last: int

    def bins_of(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the bin of each step; what lies outside belongs to the first or the last one."""
        places = np.searchsorted(self.starts, steps, side="right") - 1
        return np.maximum(places, 0)


@dataclass(frozen=True, slots=True)
class Envelope:
    """The least and the greatest value of each bin, float32.

    A bin without values has ``low`` inf above ``high`` -inf; one that holds a NaN is NaN. What float32 cannot hold
    is its greatest number.
    """

    low: NDArray[np.float32]
    high: NDArray[np.float32]


def make_axis(steps: NDArray[np.int64], most: int) -> Axis:
    """Return at most ``most`` bins, each of as many of the watched steps (ascending, unique, at least one)."""
    bins = min(most, len(steps))
    return Axis(steps[np.arange(bins) * len(steps) // bins], int(steps[-1]))


class Binning:
    """Bins series on an axis. Steps are looked up once for series that follow each other and share them, as most do."""

    def __init__(self, axis: Axis) -> None:
        self.axis = axis
        self._steps: NDArray[np.int64] = np.empty(0, np.int64)
        self._bins = self._firsts = np.empty(0, np.intp)

    def envelope(self, steps: NDArray[np.int64], values: NDArray[np.float64]) -> Envelope:
        """Return what a series (steps ascending) spans in each bin."""
        return Envelope(
            _single(self._reduce(np.minimum, steps, values, np.inf)),
            _single(self._reduce(np.maximum, steps, values, -np.inf)),
        )

    def greatest(self, steps: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the greatest value of each bin, -inf for a bin without values."""
        return self._reduce(np.maximum, steps, values, -np.inf)

    def _reduce(
        self, extreme: np.ufunc, steps: NDArray[np.int64], values: NDArray[np.float64], empty: float
    ) -> NDArray[np.float64]:
        if not np.array_equal(steps, self._steps):
            self._steps = steps
            self._bins, self._firsts = np.unique(self.axis.bins_of(steps), return_index=True)
        reduced = np.full(len(self.axis.starts), empty)
        if len(steps):
            reduced[self._bins] = extreme.reduceat(values, self._firsts)
        return reduced


def _single(values: NDArray[np.float64]) -> NDArray[np.float32]:
    finite = np.isfinite(values)
    return np.where(finite, np.clip(values, -_GREATEST, _GREATEST), values).astype(np.float32)
