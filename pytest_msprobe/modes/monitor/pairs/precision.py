"""How precisely a run computed, read off the extremes of its tensors: they are numbers of the tensors' own dtype."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Unit roundoffs by dtype: half of the distance from 1 to the next number.
UNIT_ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}

# As many different numbers hit a dtype by chance once in 2^(13 * 8) tries.
_FEWEST = 8


def dtype_of(extremes: NDArray[np.float64], quantum: float) -> str | None:
    """Return the least precise dtype that holds all of a tensor's extremes; None where they are too few to tell.

    ``quantum`` is what the file rounded them to, which makes float64 look like float32.
    """
    numbers = np.unique(np.abs(extremes[np.isfinite(extremes) & (extremes != 0)]))
    if numbers.size < _FEWEST:
        return None
    for dtype, rounded in (
        ("bfloat16", _bfloat16(numbers)),
        ("float16", _half(numbers)),
        ("float32", _single(numbers)),
    ):
        if np.all(np.abs(rounded - numbers) <= quantum / 2 * (1 + 2**-20)):
            return dtype if dtype == "float32" or _tells(numbers, dtype, quantum) else None
    return "float64"


def _tells(numbers: NDArray[np.float64], dtype: str, quantum: float) -> bool:
    """Tell whether the dtype's own steps are wider than the file's, for enough numbers that it is not chance."""
    return bool(np.sum(numbers * UNIT_ROUNDOFF[dtype] > 8 * quantum) >= _FEWEST)


def _bfloat16(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    mantissa, exponent = np.frexp(numbers)
    rounded: NDArray[np.float64] = np.ldexp(np.round(mantissa * 2.0**8), exponent - 8)
    return rounded


def _half(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):
        return numbers.astype(np.float16).astype(np.float64)


def _single(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32).astype(np.float64)
