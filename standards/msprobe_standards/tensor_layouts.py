"""Tensors that are more than a block of elements, taken apart into plain tensors, and these as arrays of numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch._C import _to_dlpack

if TYPE_CHECKING:
    from collections.abc import Mapping

    Parts = Mapping[str, Any]


# What numpy takes over DLPack as another dtype, whichever versions of numpy and torch.
_READ_AS = {
    torch.bool: (torch.uint8, np.bool_),
    torch.uint16: (torch.int16, np.uint16),
    torch.uint32: (torch.int32, np.uint32),
    torch.uint64: (torch.int64, np.uint64),
}


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


class _Lent:
    """A tensor as `np.from_dlpack` takes it in every version of numpy."""

    __slots__ = ("_tensor",)

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __dlpack__(self, **_: object) -> Any:
        return _to_dlpack(self._tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def as_array(tensor: torch.Tensor) -> NDArray[Any]:
    """Return an array on the memory of a plain CPU tensor of one of numpy's dtypes, to be read and dropped.

    After ``Tensor.numpy()`` torch resizes that memory no more, and raises where the program does, as FSDP does.
    """
    read_as = _READ_AS.get(tensor.dtype)
    if read_as is None:
        return np.from_dlpack(_Lent(tensor))
    return np.from_dlpack(_Lent(tensor.view(read_as[0]))).view(read_as[1])
