"""Scaled softmax under a mask."""

from __future__ import annotations

import torch
from torch import Tensor

# a finite number, not -inf: a row without any visible element is the uniform distribution on the device too
_MASKED = -10000.0


def _upper_triangle(x: Tensor) -> Tensor:
    return torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).triu(1)


def npu_scaled_masked_softmax(x: Tensor, mask: Tensor, scale: float = 1.0, fixed_triu_mask: bool = False) -> Tensor:
    """Softmax over the last dimension of x * scale, with -10000 where ``mask`` is True.

    ``fixed_triu_mask`` takes the strict upper triangle of the last two dimensions for the mask instead.
    """
    hidden = _upper_triangle(x) if fixed_triu_mask else mask.bool()
    return torch.softmax((x * scale).masked_fill(hidden, _MASKED), -1)


def npu_scaled_masked_softmax_backward(
    y_grad: Tensor, y: Tensor, mask: Tensor, scale: float = 1.0, fixed_triu_mask: bool = False
) -> Tensor:
    """Gradient of :func:`npu_scaled_masked_softmax` for x from its output ``y``; 0 where masked."""
    hidden = _upper_triangle(y) if fixed_triu_mask else mask.bool()
    grad = y * (y_grad - (y_grad * y).sum(-1, keepdim=True)) * scale
    return grad.masked_fill(hidden, 0.0)
