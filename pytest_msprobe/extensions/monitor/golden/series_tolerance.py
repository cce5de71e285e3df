"""How far apart the statistics of two correct runs may be at a step, by the dtype that they were computed in.

The constants are derived in docs/monitor.md, "Two runs".
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from pytest_msprobe.extensions.monitor.golden.differences import Numbers

#: Honest differences of a step are at most this many times the largest of the steps before.
GROWTH: Final = 32.0
#: Roundings, in units of the roundoff, that a statistic of a tensor has from another order of its sums.
ROUNDINGS: Final = 32.0
#: Roundings, in units of the largest tensor of a task, that remain where a gradient cancels to nothing.
CANCELLATION: Final = 16.0
#: What units that switch on in one of two runs change of the gradients behind them: at first, and once most gradients
#: are further apart than `DRIFTED`, so that many units have.
SWITCH: Final = 0.25
SWITCHES: Final = 0.5
DRIFTED: Final = 1e-3
#: What forward tensors may differ by once a unit has switched: Adam's first step is its rate, whichever the sign.
MOVED: Final = 5e-3
#: What forward tensors and parameters may differ by where nothing that is watched says how far they honestly drift.
COARSE: Final = 0.05
#: Differences of a tensor, in units of that of a bias that only rounding drives, which is added to it.
BIAS: Final = 4.0


def rounding_floor(unit_roundoff: float, *, is_learnt: bool) -> float:
    """Return the relative difference that rounding alone explains at any step.

    Half of the dtype's digits (the root of its unit roundoff), or 32 roundings where that is more; these alone where
    golden runs show how fast differences grow.
    """
    few = ROUNDINGS * unit_roundoff
    return few if is_learnt else max(float(np.sqrt(unit_roundoff)), few)


def cancellation_floor(
    unit_roundoff: float, largest: Numbers, size: Numbers, roundings: float = CANCELLATION
) -> Numbers:
    """Return the relative difference of a tensor that may be nothing but the rounding of larger terms.

    The gradient of a key's bias, or of a bias before a normalization, is zero but for rounding. ``largest`` is the
    largest size in the task at each step, ``size`` the tensor's own.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        floor = roundings * unit_roundoff * largest / size
    return np.where(np.isnan(floor), 0.0, floor)


def so_far(differences: Numbers) -> Numbers:
    """Return the largest difference up to each step; one from nothing (inf) says nothing of the steps after it."""
    return np.maximum.accumulate(np.where(np.isfinite(differences), differences, 0.0))


def before(levels: Numbers) -> Numbers:
    """Return the level of the step before each one, 0 at the first."""
    return np.concatenate([np.zeros(1), levels[:-1]]) if levels.size else levels


def tolerance(floor: Numbers | float, *levels: Numbers) -> Numbers:
    """Return the allowed relative difference at each step: the floor, or the growth of what was seen before."""
    allowed: Numbers = np.maximum(floor, GROWTH * np.max(levels, axis=0))
    return allowed


#: Unit roundoffs by dtype: half of the distance from 1 to the next number.
UNIT_ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}

# As many different numbers hit a dtype by chance once in 2^(13 * 8) tries.
_FEWEST = 8


def dtype_of(extremes: NDArray[np.float64], quantum: float) -> str | None:
    """Return the least precise dtype that holds all of a tensor's extremes; None where they are too few to say.

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
            return dtype if dtype == "float32" or _identifies(numbers, dtype, quantum) else None
    return "float64"


def _identifies(numbers: NDArray[np.float64], dtype: str, quantum: float) -> bool:
    """Return whether the dtype's own steps are wider than the file's, for enough numbers that it is not chance."""
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
