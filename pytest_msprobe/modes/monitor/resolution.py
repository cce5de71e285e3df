"""What the numbers of a file were rounded to: msprobe's CSV has six decimals, whatever the magnitude."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_FEWEST, _MOST = 3, 12


def resolution(values: NDArray[np.float64]) -> float:
    """Return the power of ten that all values are multiples of, as 1e-6; 0 where there are more than 12 decimals.

    Fewer than three decimals are no rounding that a file has, so that counts and constants stay what they are.
    """
    for decimals in range(_FEWEST, _MOST + 1):
        if np.array_equal(np.round(values, decimals), values, equal_nan=True):
            return 10.0**-decimals
    return 0.0
