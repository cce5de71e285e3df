"""Rotary position embedding."""

from __future__ import annotations

import torch
from torch import Tensor


def _rotated(x: Tensor, rotary_mode: str) -> Tensor:
    """Turn every pair of the last dimension by 90 degrees: (a, b) becomes (-b, a)."""
    if rotary_mode == "half":
        first, second = x.chunk(2, -1)
        return torch.cat((-second, first), -1)
    if rotary_mode == "interleave":
        return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    raise ValueError(f"rotary_mode {rotary_mode!r} has no golden definition; known are 'half' and 'interleave'")


def npu_rotary_mul(self: Tensor, r1: Tensor, r2: Tensor, rotary_mode: str = "half") -> Tensor:
    """r1 * x + r2 * rotated(x) (Su et al., RoFormer, 2021); r1 (cos) and r2 (sin) broadcast against x.

    ``rotary_mode`` tells which elements of the last dimension are a pair: ``"half"`` (i, i + D/2) or
    ``"interleave"`` (2i, 2i + 1). Raises ValueError for another one.
    """
    return r1 * self + r2 * _rotated(self, rotary_mode)


def npu_rotary_mul_backward(
    grad: Tensor, self: Tensor, r1: Tensor, r2: Tensor, rotary_mode: str = "half"
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of :func:`npu_rotary_mul` for x, r1 and r2; the last two summed over what was broadcast."""
    # the rotation's transpose is its inverse, which is minus itself
    grad_self = (grad * r1 - _rotated(grad * r2, rotary_mode)).sum_to_size(self.shape)
    grad_r1 = (grad * self).sum_to_size(r1.shape)
    grad_r2 = (grad * _rotated(self, rotary_mode)).sum_to_size(r2.shape)
    return grad_self, grad_r1, grad_r2
