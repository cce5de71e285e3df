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


def envelope(axis: Axis, steps: NDArray[np.int64], values: NDArray[np.float64]) -> Envelope:
    """Return what a series (steps ascending) spans in each bin."""
    low = np.full(len(axis.starts), np.inf)
    high = np.full(len(axis.starts), -np.inf)
    if len(steps):
        places, firsts = np.unique(axis.bins_of(steps), return_index=True)
        low[places] = np.minimum.reduceat(values, firsts)
        high[places] = np.maximum.reduceat(values, firsts)
    return Envelope(_single(low), _single(high))


def greatest(axis: Axis, steps: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the greatest value of each bin, -inf for a bin without values; there is no NaN among them."""
    most = np.full(len(axis.starts), -np.inf)
    np.maximum.at(most, axis.bins_of(steps), values)
    return most


def _single(values: NDArray[np.float64]) -> NDArray[np.float32]:
    finite = np.isfinite(values)
    return np.where(finite, np.clip(values, -_GREATEST, _GREATEST), values).astype(np.float32)
