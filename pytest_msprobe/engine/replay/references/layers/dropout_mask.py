"""Dropout by a mask that was drawn before: a bit for each element, the lowest of a byte first."""

from __future__ import annotations

import torch
from torch import Tensor


def kept_by(mask: Tensor, shape: torch.Size) -> Tensor:
    """Return which elements of a shape the bits of ``mask`` (bytes, filled up to 128 bits) keep."""
    bits = (mask.reshape(-1, 1).to(torch.int64) >> torch.arange(8)) & 1
    return bits.flatten()[: shape.numel()].view(shape).bool()


def npu_dropout_backward(grad_output: Tensor, mask: Tensor, p: float) -> Tensor:
    """Return the gradient of a dropout with probability ``p``: grad / (1 - p) where ``mask`` keeps, otherwise 0."""
    if p == 1:
        return torch.zeros_like(grad_output)
    return torch.where(kept_by(mask, grad_output.shape), grad_output / (1 - p), 0.0)


def npu_dropout_do_mask(self: Tensor, mask: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """Return (self / (1 - p) where ``mask`` keeps and 0 where it does not, mask)."""
    return npu_dropout_backward(self, mask, p), mask
