"""How far two runs are apart, step by step, in one byte a bin."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pytest_msprobe.modes.monitor.page.axis import Binning
from pytest_msprobe.modes.monitor.pairs.differences import CONTINUOUS, relative_difference
from pytest_msprobe.modes.monitor.pairs.tensors import Twins

#: What a byte says: no step that both runs watched; equal; from LEAST, on a logarithmic scale, to GREATEST; NaN or
#: inf where the other run has none.
MISSING, EQUAL, SCALE, NOT_FINITE = 0, 1, (2, 254), 255
LEAST, GREATEST = 1e-9, 2.0


def gap(both: Twins, statistic: str) -> NDArray[np.float64]:
    """Return how far apart a statistic is at each step: as it is judged, others relative to themselves, 0 to 2.

    It is inf where only one of the values is finite.
    """
    if statistic in CONTINUOUS:
        return both.difference(statistic)
    target, golden = both.target[statistic], both.golden[statistic]
    return relative_difference(target, golden, np.maximum(np.abs(target), np.abs(golden)))


def gap_bytes(binning: Binning, steps: NDArray[np.int64], gaps: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Return the greatest gap of each bin as a byte."""
    most = binning.greatest(steps, gaps)
    first, last = SCALE
    with np.errstate(divide="ignore"):
        decades = np.log10(np.clip(most, LEAST, GREATEST) / LEAST) / np.log10(GREATEST / LEAST)
    levels: NDArray[np.float64] = np.rint(first + decades * (last - first))
    levels[most == 0] = EQUAL
    levels[most == np.inf] = NOT_FINITE
    levels[most == -np.inf] = MISSING
    return levels.astype(np.uint8)
