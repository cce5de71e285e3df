"""Masked values: a share of a tensor's elements at one fill value, far beyond all others.

Scores drawn evenly over such a range make every row of a softmax one-hot, with all gradients zero: whatever the device
does to the others cannot be seen.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from msprobe_hooks.dump.schema import TensorElement

# How far the fill value lies beyond the others, in their own size: where mean and norm confirm that nothing lies in
# between, and where they are unknown or overflowed. -1e4 is the smallest fill value in use, scores stay below 10: that
# is a gap of 1000. Scores of 100 are still found where mean and norm show the mask.
_CONFIRMED_GAP = 100.0
_UNCONFIRMED_GAP = 1000.0

# How well the shares by mean and by norm agree. Of values spread evenly they are 1/2 and 1/3, which 0.5 would let pass.
_AGREEMENT = 0.1


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
