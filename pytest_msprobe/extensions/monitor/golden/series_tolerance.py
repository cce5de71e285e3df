"""Tolerance of series: how far statistics of two correct runs may differ, and a watched tensor in both.

The constants are derived in docs/monitor-reference.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Final, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.extensions.monitor.series.reader import Series, SeriesKey
from msprobe_hooks.extensions.monitor.series.tables import Watched

Numbers = NDArray[np.float64]

#: Statistics that round as their tensor does. Shares of elements (zeros, subnormals) jump by whole elements instead.
CONTINUOUS = ("norm", "rms", "min", "max", "mean")

# What a factor shows in, and how exactly. Of 70 000 times that a unit which had switched moved a gradient by over 1e-4,
# the three moved alike to 5 % in 17, and to 1 % in none.
_OF_SCALE, _SAME_FACTOR = ("norm", "min", "max"), 0.01
# The square of a norm is at least this many times that of the extremes: other elements make three quarters of it.
_OTHER_ELEMENTS = 4.0

# Decimals with which some value of a run is written that was not rounded.
_WHOLE_DIGITS = 15

# docs/monitor-reference.md, "Tolerance of two runs", has the runs in which all below was measured: a GPT and a ResNet,
# with SGD and Adam, in other threads, batches and kernels.

#: Honest differences of a step are at most this many times the largest of the steps before: it was up to 27 times
#: without a ReLU, and 7 times from step to step with one.
GROWTH: Final = 32.0
#: Roundings, in units of the roundoff, that a statistic of a tensor has from another order of its sums: 7 at the first
#: step in float32, 10 in bfloat16.
ROUNDINGS: Final = 32.0
#: Roundings, in units of the largest tensor of a task, that remain where a gradient cancels to nothing: the norm
#: of a bias before a batch normalization had 0.8.
CANCELLATION: Final = 16.0
#: What units that switch on in one of two runs change of the gradients behind them: at first, where it was 0.03 to 2 %,
#: and once most gradients are further apart than `DRIFTED`, so that many units have: a third, where most were 0.8 %.
SWITCH: Final = 0.25
SWITCHES: Final = 0.5
DRIFTED: Final = 1e-3
#: What forward tensors may differ by once a unit has switched: Adam's first step is its rate, whichever the sign.
#: After it they were 0.06 % apart, after six of SGD 0.2 %.
MOVED: Final = 5e-3
#: What forward tensors and parameters may differ by where nothing that is watched says how far they honestly drift.
COARSE: Final = 0.05
#: Differences of a tensor, in units of that of a bias that only rounding drives, which is added to it: forward
#: tensors differed by 0.4 % after 40 steps of Adam.
BIAS: Final = 4.0

#: Unit roundoffs by dtype: half of the distance from 1 to the next number.
UNIT_ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}

# As many different numbers hit a dtype by chance once in 2^(13 * 8) tries.
_FEWEST = 8

# Powers of two from below what float64 can distinguish to inf; bin 0 is for equal values.
_LOWEST, _BINS = -56, 64


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
            cumulated = np.cumsum(self._counts, axis=1, dtype=np.int64)
            bins = np.argmax(2 * cumulated >= cumulated[:, -1:], axis=1)
            self._median = np.where(bins > 0, np.exp2(bins.astype(np.float64) + _LOWEST), 0.0)
        return self._median


class Source(Protocol):
    """One rank's run as far as pairs read it."""

    @property
    def keys(self) -> Iterable[SeriesKey]:
        """The series, in the order computed."""

    def read(self, key: SeriesKey) -> Series:
        """Return one of them."""


class Statistics:
    """Statistics of each tensor of a run, by name, tensors in the order computed."""

    def __init__(self, run: Source) -> None:
        self._run = run
        self._names: dict[Watched, list[str]] = {}
        for key in run.keys:
            self._names.setdefault(key.watched, []).append(key.statistic)

    @property
    def tensors(self) -> Sequence[Watched]:
        """The tensors in the order computed."""
        return [*self._names]

    def __contains__(self, tensor: object) -> bool:
        return tensor in self._names

    def names(self, tensor: Watched) -> list[str]:
        """Return the statistics of a tensor, none where the run does not have it."""
        return self._names.get(tensor, [])

    def read(self, tensor: Watched) -> dict[str, Series]:
        """Return the series of a tensor by statistic."""
        return {name: self._run.read(SeriesKey(*tensor, name)) for name in self.names(tensor)}


@dataclass(frozen=True, slots=True)
class Twins:
    """The statistics of one tensor in two runs, by name, at common ``steps`` (int64, ascending)."""

    steps: NDArray[np.int64]
    target: Mapping[str, Numbers]
    golden: Mapping[str, Numbers]

    def size(self, statistic: str) -> Numbers:
        """Return what differences of a statistic are relative to: the larger of both runs, at each step."""
        return np.maximum(scale(statistic, self.target), scale(statistic, self.golden))

    def difference(self, statistic: str) -> Numbers:
        """Return the relative difference of a statistic at each step."""
        return relative_difference(self.target[statistic], self.golden[statistic], self.size(statistic))

    @property
    def continuous(self) -> list[str]:
        """The statistics that differences of rounding change by little."""
        return [name for name in CONTINUOUS if name in self.target]


def twins(target: Mapping[str, Series], golden: Mapping[str, Series]) -> Twins:
    """Align the statistics that two runs have of a tensor on the steps that all of them have."""
    names = [name for name in golden if name in target]
    every = [series.steps for name in names for series in (target[name], golden[name])]
    steps = reduce(_common, every) if every else np.empty(0, np.int64)
    at = {name: (_at(target[name], steps), _at(golden[name], steps)) for name in names}
    return Twins(steps, {name: both[0] for name, both in at.items()}, {name: both[1] for name, both in at.items()})


def _common(one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    # Most series share their steps.
    return one if np.array_equal(one, other) else np.intersect1d(one, other, assume_unique=True)


def _at(series: Series, steps: NDArray[np.int64]) -> Numbers:
    if len(series.steps) == len(steps):
        return series.values
    return series.values[np.searchsorted(series.steps, steps)]
