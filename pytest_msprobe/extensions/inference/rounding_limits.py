"""Limits of errors that rounding explains: by a formula of depth, or by the trainer's own step in another precision.

A profile is the trainer's step recorded once more, in another precision. Its errors against the golden run are what
rounding makes of this model, by value: no formula knows how a model's weights amplify them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from msprobe_hooks.dump.names import FLOAT_DTYPES, coarser, finer
from pytest_msprobe.extensions.inference.recorded_weights import UNIT_ROUNDOFF

if TYPE_CHECKING:
    from pytest_msprobe.extensions.inference.token_errors import Numbers

# How many roundings of a whole row an operator may add, and how much its sums in another order: choices that 8 models
# on a CPU keep by a factor of three and more.
_ROUNDINGS = 8.0
# In equal models the median of all tokens is a quarter of the greatest error.
_MEDIAN_SHARE = 4.0
# A choice: healthy engines have up to 1.6 times a profile's greatest error in the models of the benchmark.
_PROFILE_TOKEN = 4.0
# Two runs of a precision that round independently are further apart than either is from the exact result.
_INDEPENDENT: Final = math.sqrt(2.0)
# Choices: a mean is off by so many of its standard errors, of at least so many tokens, and by this share of the usual
# error of a token.
_STANDARD_ERRORS = 6.0
_FEWEST_TOKENS = 16
_LEAST_GAIN = 0.1
# Weights that were rounded make all rows longer or shorter by the mean of their roundings, which are a 0.41th of the
# unit roundoff each in the mean: this many of it. Where both rounded the same, a small part of it.
_WEIGHT_ROUNDINGS = 4.0
_SAME_WEIGHTS = 1 / 16


def operator_limit(dtype: str, width: int) -> float:
    """Return how far the results of one operator may be apart, as a fraction of their norm.

    Eight roundings of its dtype, and as many of sums of ``width`` terms in float32 (float64 for float64), whose errors
    grow with the square root of their number.
    """
    return _ROUNDINGS * rounding(dtype, width)


def rounding(dtype: str, width: int) -> float:
    """Return one rounding of a row of a dtype, and one of a sum of ``width`` terms, as a fraction of the row's norm."""
    accumulated = UNIT_ROUNDOFF["float64" if dtype == "float64" else "float32"]
    return UNIT_ROUNDOFF[dtype] + accumulated * math.sqrt(width)


def depth_limit(dtype: str, width: int, block: int) -> float:
    """Return how far results may be apart behind so many blocks, each of which adds independent roundings."""
    return operator_limit(dtype, width) * math.sqrt(1 + block)


@dataclass(frozen=True, slots=True)
class Explained:
    """Limits of a value's errors, as fractions of a golden row's norm: of any token, and of the median of all.

    ``profile_error`` and ``profile_median`` are what the profile has; NaN where the limits follow from a formula.
    """

    error: float
    median: float
    profile_error: float = math.nan
    profile_median: float = math.nan

    @property
    def is_measured(self) -> bool:
        """Return whether a profile says it."""
        return not math.isnan(self.profile_error)

    def share(self, error: float, median: float) -> float:
        """Return the greater of both errors as a share of its limit."""
        return max(error / self.error, median / self.median)


def by_formula(dtype: str, width: int, block: int, more: float) -> Explained:
    """Return what roundings explain behind so many blocks; ``more`` is added to it."""
    limit = depth_limit(dtype, width, block) + more
    return Explained(limit, limit / _MEDIAN_SHARE)


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lengths of a norm's rows as multiples of the golden ones: of so many tokens mean and standard deviation."""

    mean: float
    deviation: float
    tokens: int


def lengths_of(gains: Numbers) -> Lengths | None:
    """Return the lengths of a norm's rows in one; None of too few tokens."""
    finite = gains[np.isfinite(gains)]
    if len(finite) < _FEWEST_TOKENS:
        return None
    return Lengths(float(finite.mean()), float(finite.std()), len(finite))


@dataclass(frozen=True, slots=True)
class ProfiledValue:
    """A value of a profile: its dtype, and over so many tokens the greatest error, the median, and a norm's lengths."""

    dtype: str
    tokens: int
    error: float
    median: float
    lengths: Lengths | None = None


def by_profile(value: ProfiledValue, tokens: int, dtype: str, width: int, more: float) -> Explained:
    """Return what a profile explains of ``tokens`` tokens; one rounding always is, and ``more`` with it.

    The median may be √2 (1 + 1/√n) times the profile's median, where n is the smaller number of tokens: runs of one
    precision round independently, and a median of n tokens is as uncertain. A token may have four times the profile's
    greatest error.
    """
    least = rounding(dtype, width) + more
    margin = _INDEPENDENT * (1 + 1 / math.sqrt(min(tokens, value.tokens)))
    return Explained(
        max(_PROFILE_TOKEN * value.error, _PROFILE_TOKEN * least),
        max(margin * value.median, least),
        value.error,
        value.median,
    )


@dataclass(frozen=True, slots=True)
class Gain:
    """Length of a norm's rows over the golden ones, less 1, in the mean of all tokens; what roundings explain of it."""

    deviation: float
    limit: float

    @property
    def is_wrong(self) -> bool:
        """Return whether roundings do not explain it."""
        return abs(self.deviation) > self.limit


def gain_of(
    lengths: Lengths, against: Lengths | None, *, dtype: str, width: int, columns: float, median: float, is_same: bool
) -> Gain:
    """Return the gain of a norm.

    A norm makes rows of one length, whatever it was given, so that its epsilon and its weight show in the mean of many
    tokens far below a token's rounding. ``lengths`` are held against those of a profile, or against 1; ``columns`` says
    over how many columns a row is spread; ``median`` is the median error of the tokens; ``is_same`` says that both
    sides rounded the weights alike.
    """
    variance = lengths.deviation**2 / lengths.tokens
    if against is not None:
        variance += against.deviation**2 / against.tokens
    weights = _SAME_WEIGHTS if is_same else _WEIGHT_ROUNDINGS / math.sqrt(columns)
    rounded = weights * UNIT_ROUNDOFF[dtype] + operator_limit("float64" if dtype == "float64" else "float32", width)
    limit = max(_STANDARD_ERRORS * math.sqrt(variance) + rounded, _LEAST_GAIN * median)
    return Gain(lengths.mean / (1.0 if against is None else against.mean) - 1, limit)


class RunningPrecision:
    """The dtype that both runs' results are known to, along the forward pass.

    Results of two dtypes are as precise as the coarser one at the beginning of the model. Where only one run becomes
    coarser in the middle, precision does not explain that: the other run has not done so.
    """

    def __init__(self) -> None:
        self._dtype = ""

    def at(self, target: str, golden: str) -> str:
        """Return the dtype by which a value of two dtypes is judged, and keep it for those that follow."""
        if not self._dtype:
            self._dtype = coarser(target, golden)
        self._dtype = coarser(self._dtype, finer(target, golden))
        return self._dtype

    def is_coarser(self, target: str, golden: str) -> bool:
        """Return whether one run rounds a value more coarsely than the other and than all before."""
        return bool(self._dtype) and FLOAT_DTYPES.index(coarser(target, golden)) < FLOAT_DTYPES.index(self._dtype)
