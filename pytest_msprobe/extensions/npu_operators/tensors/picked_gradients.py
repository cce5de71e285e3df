"""Gradients of picked, greatest and cast elements, and the casts that torch_npu makes by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def npu_gather_backward(grad: Tensor, self_size: Sequence[int], dim: int, index: Tensor, sparse_grad: bool) -> Tensor:
    """Return the gradient of ``torch.gather``: that of each picked element added up where it was, (self_size).

    ``sparse_grad`` has no influence on values.
    """
    return grad.new_zeros(list(self_size)).scatter_add(dim, index.long(), grad)


def npu_gather_sparse_index_backward(grad: Tensor, self_sizes: Sequence[int], index: Tensor) -> Tensor:
    """Return the gradient of ``npu_gather_sparse_index``: that of each picked row added up where it was."""
    row = list(self_sizes)[1:]
    return grad.new_zeros(list(self_sizes)).index_add(0, index.long().reshape(-1), grad.reshape(-1, *row))


def npu_max_backward(grad: Tensor, dim: int, indices: Tensor, sizes: Sequence[int], keepdim: bool) -> Tensor:
    """Return the gradient of ``npu_max``: ``grad`` where the maximum was along ``dim``, 0 everywhere else, (sizes)."""
    if not sizes:
        return grad.clone()
    if not keepdim:
        grad, indices = grad.unsqueeze(dim), indices.unsqueeze(dim)
    return grad.new_zeros(list(sizes)).scatter(dim, indices.long(), grad)


npu_min_backward = npu_max_backward


def npu_dtype_cast_backward(
    grad: Tensor, dtype: torch.dtype, grad_dtype: int | None = None, input_dtype: int | None = None
) -> Tensor:
    """Return the gradient in ``dtype``, that of the tensor that was cast.

    ``grad_dtype`` and ``input_dtype`` name numbers of 8 bits and fewer, which have no gradient.
    """
    return grad.to(dtype)


def _npu_dtype_cast_backward(grad: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the gradient in ``dtype``, that of the tensor that was cast."""
    return grad.to(dtype)


def _npu_dtype_cast(self: Tensor, dtype: torch.dtype) -> Tensor:
    """Cast to ``dtype``."""
    return self.to(dtype)


def _npu_format_cast(
    self: Tensor, acl_format: int, customize_dtype: int | None = None, input_dtype: int | None = None
) -> Tensor:
    """Change the device's memory format: the values stay.

    ``customize_dtype`` and ``input_dtype`` name the numbers that the bytes are; they are moved as they are.
    """
    return self.clone()
