"""How far two runs are apart, step by step, in one byte a bin."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pytest_msprobe.modes.monitor.page.axis import Binning

#: What a byte says: no step that both runs watched; equal; from LEAST, on a logarithmic scale, to GREATEST; NaN or
#: inf where the other run has none.
MISSING, EQUAL, SCALE, NOT_FINITE = 0, 1, (2, 254), 255
LEAST, GREATEST = 1e-9, 2.0


def relative_gap(target: NDArray[np.float64], golden: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``|target - golden|`` over the greater of both sizes: 0 (equal, or NaN in both) to 2 (opposite signs).

    It is inf where only one is finite, or both are not and differ.
    """
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        size = np.maximum(np.abs(target), np.abs(golden))
        # Divided first: the difference of two finite numbers may overflow.
        gap = np.abs(target / size - golden / size)
    gap[~(np.isfinite(target) & np.isfinite(golden))] = np.inf
    gap[(target == golden) | (np.isnan(target) & np.isnan(golden))] = 0
    return gap


def gap_bytes(binning: Binning, steps: NDArray[np.int64], gap: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Return the greatest gap of each bin as a byte."""
    most = binning.greatest(steps, gap)
    first, last = SCALE
    with np.errstate(divide="ignore"):
        decades = np.log10(np.clip(most, LEAST, GREATEST) / LEAST) / np.log10(GREATEST / LEAST)
    levels: NDArray[np.float64] = np.rint(first + decades * (last - first))
    levels[most == 0] = EQUAL
    levels[most == np.inf] = NOT_FINITE
    levels[most == -np.inf] = MISSING
    return levels.astype(np.uint8)
