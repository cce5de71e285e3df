"""Operators that draw: places among true elements, boxes to train on, exponential numbers."""

from __future__ import annotations

import torch
from torch import Tensor

_IGNORED = -1
# a product of whole numbers and a fraction that rounding left below a whole number
_ROUNDED = 1e-6


def npu_sim_exponential_(self: Tensor, lambd: float = 1, *, generator: torch.Generator | None = None) -> Tensor:
    """Fill ``self`` with exponential numbers of rate ``lambd``."""
    return self.exponential_(lambd)


def npu_random_choice_with_mask(x: Tensor, count: int = 256, seed: int = 0, seed2: int = 0) -> tuple[Tensor, Tensor]:
    """Return (``count`` places of true elements of ``x``, filled up with 0, which of them are such); 0 is all."""
    places = x.nonzero()
    chosen = places[torch.randperm(len(places))][: count or len(places)]
    missing = (count or len(places)) - len(chosen)
    mask = torch.arange(len(chosen) + missing) < len(chosen)
    return torch.cat([chosen, chosen.new_zeros(missing, x.dim())]).to(torch.int32), mask


def npu_sub_sample(self: Tensor, per_images: int, positive_fraction: float) -> Tensor:
    """Return labels of which at most ``per_images`` are left, the positive ones of them at most that fraction."""
    positive, negative = ((self == label).nonzero().flatten() for label in (1, 0))
    positive = positive[torch.randperm(len(positive))][: int(per_images * positive_fraction + _ROUNDED)]
    negative = negative[torch.randperm(len(negative))][: per_images - len(positive)]
    return torch.full_like(self, _IGNORED).index_fill(0, positive, 1).index_fill(0, negative, 0)
