"""Recorded statistics of a tensor: its range, whether its values are peaked, what is infinite."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from msprobe_hooks.dump.schema import Number, TensorElement

# A uniform distribution's standard deviation is its range / sqrt(12) = 0.289; below this one it is clearly peaked.
_PEAKED_SHARE = 0.25


def integer_range(element: TensorElement, dtype: torch.dtype) -> tuple[int, int]:
    """Return the recorded range, 0 to 1 where it is unknown, within what the integer dtype holds."""
    limits = torch.iinfo(dtype)
    low, high = (_whole(bound, default) for bound, default in ((element.min, 0), (element.max, 1)))
    # Version 1.2.2 took integer statistics through float32, so they may lie beyond the dtype.
    low, high = (max(limits.min, min(limits.max, bound)) for bound in sorted((low, high)))
    return low, high


def _whole(bound: Number | None, default: int) -> int:
    return int(bound) if bound is not None and math.isfinite(bound) else default


def finite_range(element: TensorElement, dtype: torch.dtype) -> tuple[float, float]:
    """Return the range of the finite values; what the dump does not hold is made up around what it does."""
    limits = torch.finfo(dtype)
    bounds = [
        float(bound)
        for bound in (element.finite_min, element.finite_max, element.min, element.max, element.mean)
        if bound is not None and math.isfinite(bound)
    ]
    low, high = (min(bounds), max(bounds)) if bounds else (-1.0, 1.0)
    if low == high and element.max == math.inf:
        high = low + max(1.0, abs(low))
    return max(low, limits.min), min(high, limits.max)


def working_dtype(low: float, high: float, dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which floats of this range are drawn.

    Half precision would draw from a coarse grid, and a range can be wider than the dtype's largest value.
    """
    fits_float32 = high - low < torch.finfo(torch.float32).max
    return torch.float32 if fits_float32 and dtype is not torch.float64 else torch.float64


class Peak(NamedTuple):
    """Values about a mean, closer to it than evenly spread ones would be."""

    mean: float
    deviation: float


def peak_of(element: TensorElement, low: float, high: float, count: int) -> Peak | None:
    """Return mean and standard deviation where they are known and say that the values are peaked."""
    if element.mean is None or element.norm is None or count < 3:
        return None
    mean, norm = float(element.mean), float(element.norm)
    if not (math.isfinite(mean) and math.isfinite(norm) and low <= mean <= high):
        return None
    deviation = math.sqrt(max(norm * norm / count - mean * mean, 0.0)) if norm < 1e150 else math.inf
    return Peak(mean, deviation) if 0.0 < deviation < _PEAKED_SHARE * (high - low) else None


def placed_values(element: TensorElement, low: float, high: float, count: int) -> list[tuple[range, float]]:
    """Return the values at certain places of the flattened tensor, later ones over earlier ones.

    The first element is the least, the last one the greatest. NaN and +inf are at one place, -inf, which comes from an
    attention mask more often than from anything else, at every second one at most; where all elements are one of them,
    it is everywhere.
    """
    placed = [(range(1), low), (range(count - 1, count), high)]
    nans, positive, negative = _nonfinite_counts(element, count)
    if negative:
        step = max(2, count // negative)
        placed.append(
            (range(count) if negative == count else range(0, min(count - 1, step * negative), step), -math.inf)
        )
    if positive:
        placed.append((range(0 if positive == count else count - 1, count), math.inf))
    if nans:
        # Next to the greatest, so that a tensor of two elements shows both.
        middle = (count - 1 if positive else count) // 2
        placed.append((range(count) if nans == count else range(middle, middle + 1), math.nan))
    return placed


def _nonfinite_counts(element: TensorElement, count: int) -> tuple[int, int, int]:
    """Return how many elements are NaN, +inf and -inf: as recorded, else as few as the extrema show."""
    if element.nan_count is not None:
        return element.nan_count, element.posinf_count or 0, element.neginf_count or 0
    maximum, minimum = _float_or_zero(element.max), _float_or_zero(element.min)
    if math.isnan(maximum):
        return (count if math.isnan(_float_or_zero(element.finite_max)) else 1), 0, 0
    positive = (count if minimum == math.inf else 1) if maximum == math.inf else 0
    negative = (count if maximum == -math.inf or count == 1 else count // 2) if minimum == -math.inf else 0
    return 0, positive, negative


def _float_or_zero(bound: Number | None) -> float:
    return 0.0 if bound is None else float(bound)
