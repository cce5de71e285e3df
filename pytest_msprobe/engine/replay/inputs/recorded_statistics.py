"""Recorded statistics of a tensor: its range, whether its values are peaked or masked, what is infinite.

Of masked values a share is at one fill value, far beyond all others. Scores drawn evenly over such a range make every
row of a softmax one-hot, with all gradients zero: whatever the device does to the others cannot be seen.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from msprobe_hooks.dump.schema import Number, TensorElement

# A uniform distribution's standard deviation is its range / sqrt(12) = 0.289; below this one it is clearly peaked.
_PEAKED_SHARE = 0.25

# How far the fill value lies beyond the others, in their own size: where mean and norm confirm that nothing lies in
# between, and where they are unknown or overflowed. -1e4 is the smallest fill value in use, scores stay below 10: that
# is a gap of 1000. Scores of 100 are still found where mean and norm show the mask.
_CONFIRMED_GAP = 100.0
_UNCONFIRMED_GAP = 1000.0

# How well the shares by mean and by norm agree. Of values spread evenly they are 1/2 and 1/3, which 0.5 would let pass.
_AGREEMENT = 0.1


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


class Mask(NamedTuple):
    """A share of the elements is ``fill``, the others lie between ``low`` and ``high``."""

    fill: float
    share: float
    low: float
    high: float


def mask_of(element: TensorElement, low: float, high: float, count: int) -> Mask | None:
    """Return the mask that the statistics of ``count`` values between ``low`` and ``high`` show, None if they do not.

    Elements that are ``fill`` alone, and none in between, have the greatest norm that their mean allows.
    """
    fill, near = (low, high) if -low > high else (high, low)
    reach = max(1.0, abs(near))
    gap = abs(fill / 2 - near / 2) / reach * 2
    if count < 3 or gap < _CONFIRMED_GAP:
        return None
    # The others are in their own size about zero, as far as their known end allows.
    far = near + math.copysign(2 * reach, fill - near)
    center = (near + far) / 2
    mean, norm = _finite(element.mean), _finite(element.norm)
    by_mean = None if mean is None else (mean - center) / (fill - center)
    by_norm = None if norm is None else (norm / fill) ** 2 / count
    if by_mean is None or by_norm is None:
        if gap < _UNCONFIRMED_GAP:
            return None
        share = 0.5 if by_mean is None else by_mean
    elif abs(by_mean - by_norm) > _AGREEMENT * by_norm + reach / abs(fill):
        return None
    else:
        share = by_norm
    return Mask(fill, min(max(share, 0.0), 1.0), *sorted((near, far)))


def _finite(number: float | None) -> float | None:
    return float(number) if number is not None and math.isfinite(number) else None


def masked(mask: Mask, others: torch.Tensor, hidden: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return the others with the fill value where they are hidden; each row (last dimension) keeps one of them."""
    length = others.shape[-1] if others.dim() else 1
    if length > 1:
        # The tensor's first element will be its least one and the last its greatest: that is no place to keep.
        is_least = mask.fill < mask.low
        hidden.view(-1)[0 if is_least else -1] = True
        visible = torch.randint(length - 1, (*others.shape[:-1], 1), generator=generator) + is_least
        everywhere = hidden.all(dim=-1, keepdim=True)
        hidden.scatter_(-1, visible, hidden.gather(-1, visible) & ~everywhere)
    return others.masked_fill_(hidden, mask.fill)
