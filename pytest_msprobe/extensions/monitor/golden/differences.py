"""How far a statistic of one run is from the same of another, relative to the tensor that it is of."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import cast

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

#: Statistics that round as their tensor does. Shares of elements (zeros, subnormals) jump by whole elements instead.
CONTINUOUS = ("norm", "rms", "min", "max", "mean")

# What a factor shows in, and how exactly. Of 70 000 times that a unit which had switched moved a gradient by over 1e-4,
# the three moved alike to 5 % in 17, and to 1 % in none.
_OF_SCALE, _SAME_FACTOR = ("norm", "min", "max"), 0.01
# The square of a norm is at least this many times that of the extremes: other elements decide of it.
_OTHER_ELEMENTS = 4.0

# Decimals with which some value of a run is written that was not rounded.
_WHOLE_DIGITS = 15


def scale(statistic: str, values: Mapping[str, Numbers]) -> Numbers:
    """Return the size that differences of a statistic are relative to, at each step.

    ``values`` are the statistics of the same tensor by name, all of one shape. An extreme and the mean are relative to
    the largest magnitude, which a mean near zero does not lack; where the extremes are not watched to the rms or the
    norm, and to the statistic itself where nothing else is known.
    """
    sizes = [np.abs(values[name]) for name in ("min", "max") if name in values]
    if statistic in ("norm", "rms"):
        sizes = [np.abs(values[statistic])]
    elif len(sizes) < 2:
        sizes += [np.abs(values[name]) for name in ("rms", "norm", statistic) if name in values][:1]
    return np.where(np.isfinite(size := np.max(sizes, axis=0)), size, 0.0)


def relative_difference(target: Numbers, golden: Numbers, size: Numbers) -> Numbers:
    """Return |target - golden| / size at each step: 0 for equal values, NaN against NaN and inf against the same inf.

    It is inf where only one of the values is NaN or inf, and where something differs from a tensor without size.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        ratio = np.abs(target - golden) / size
    equal = (target == golden) | (np.isnan(target) & np.isnan(golden))
    return np.where(equal, 0.0, np.where(np.isfinite(target) & np.isfinite(golden) & ~np.isnan(ratio), ratio, np.inf))


def are_scaled(target: Mapping[str, Numbers], golden: Mapping[str, Numbers]) -> NDArray[np.bool_]:
    """Return at which steps a tensor is another times one factor: norm, minimum and maximum have it in common.

    What changes some elements moves the three by different factors. Nothing is returned where a tensor has so few
    elements that its extremes make up its norm, or where not all three are watched.
    """
    if not {*_OF_SCALE} <= {*target}:
        return np.zeros(len(next(iter(target.values()), ())), np.bool_)
    norm, *extremes = (golden[name] for name in _OF_SCALE)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        off = np.stack([target[name] / golden[name] - 1 for name in _OF_SCALE])
        is_one_factor = np.ptp(off, axis=0) < _SAME_FACTOR * np.min(np.abs(off), axis=0)
        scaled: NDArray[np.bool_] = is_one_factor & (
            np.square(norm) >= _OTHER_ELEMENTS * np.square(extremes).sum(axis=0)
        )
    return scaled


def decimals(values: Numbers) -> int:
    """Return with how many decimals values are written, the most of some of them; 0 where none is finite."""
    finite = values[np.isfinite(values)]
    some = finite[:: max(1, finite.size // 16)].tolist()
    return max((-cast("int", Decimal(repr(value)).as_tuple().exponent) for value in some), default=0)


def quantum(most_decimals: int) -> float:
    """Return what the values of a run's files were rounded to, 10 to a negative power; 0 where they are not rounded.

    msprobe's CSV has ``ndigits`` decimals, 6 by default: what is smaller is not seen. Whole digits of float64 are more.
    """
    return 10.0**-most_decimals if 0 < most_decimals < _WHOLE_DIGITS else 0.0
