"""Matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def npu_linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return input @ weight^T + bias."""
    return F.linear(input, weight, bias)


def npu_linear_backward(grad: Tensor, input: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of :func:`npu_linear` for input and weight; any number of leading dimensions."""
    return grad @ weight, grad.flatten(0, -2).mT @ input.flatten(0, -2)


def matmul_backward(
    grad: Tensor, self: Tensor, other: Tensor, mask: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of ``torch.matmul`` for self and other, None where ``mask`` is false.

    Every rank that matmul takes: vectors, matrices, batches with broadcasting.
    """
    left = self.unsqueeze(0) if self.dim() == 1 else self
    right = other.unsqueeze(-1) if other.dim() == 1 else other
    rows = grad.unsqueeze(-1) if other.dim() == 1 else grad
    rows = rows.unsqueeze(-2) if self.dim() == 1 else rows
    grad_self = (rows @ right.mT).sum_to_size(left.shape).reshape(self.shape) if mask[0] else None
    grad_other = (left.mT @ rows).sum_to_size(right.shape).reshape(other.shape) if mask[1] else None
    return grad_self, grad_other


def npu_bmmV2(self: Tensor, mat2: Tensor, output_sizes: Sequence[int]) -> Tensor:  # noqa: N802
    """Return the product of self and mat2, batches broadcast, in the shape ``output_sizes`` unless that is empty."""
    product = self @ mat2
    return product.reshape(*output_sizes) if output_sizes else product
