"""Tensors that are more than a block of elements: sparse, quantized and nested ones, taken apart into plain tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    Parts = Mapping[str, Any]


def is_plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a block of elements: strided, neither quantized nor nested."""
    return tensor.layout is torch.strided and not tensor.is_quantized and not tensor.is_nested


def is_array(tensor: torch.Tensor) -> bool:
    """Return whether numpy may view a plain tensor of one of its dtypes in place: not negated, of few dimensions."""
    # Arrays of numpy 1 have no more.
    return tensor.dim() <= 32 and not tensor.is_neg()


def in_parts(tensor: torch.Tensor) -> torch.Tensor | Parts:
    """Return a plain tensor unchanged, and the parts of any other by name: plain tensors, sizes and the layout.

    Args:
        tensor: A tensor of any layout.

    Returns:
        The tensor, or its parts: indices and values of sparse tensors, those of COO coalesced; integers, scales and
        zero points of quantized ones; the members of nested ones.
    """
    if is_plain(tensor):
        return tensor
    if tensor.is_nested:
        return {"layout": "nested", **{str(i): member for i, member in enumerate(tensor.unbind())}}
    if tensor.is_quantized:
        return {"layout": str(tensor.qscheme()), "integers": tensor.int_repr(), **_scheme(tensor)}
    indices = _indices(tensor)
    if indices is None:
        return tensor.to_dense()
    values = (tensor.coalesce() if tensor.layout is torch.sparse_coo else tensor).values()
    return {"layout": str(tensor.layout), "size": tuple(tensor.shape), **indices, "values": values}


def _indices(tensor: torch.Tensor) -> Parts | None:
    """Return the indices of a sparse tensor; None where the layout is another."""
    if tensor.layout is torch.sparse_coo:
        return {"indices": tensor.coalesce().indices()}
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return {"crow_indices": tensor.crow_indices(), "col_indices": tensor.col_indices()}
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return {"ccol_indices": tensor.ccol_indices(), "row_indices": tensor.row_indices()}
    return None


def _scheme(tensor: torch.Tensor) -> Parts:
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return {"scale": tensor.q_scale(), "zero_point": tensor.q_zero_point()}
    return {"scale": tensor.q_per_channel_scales(), "zero_point": tensor.q_per_channel_zero_points()}
