"""Operators that move, cast, pick or order elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from pytest_msprobe.engine.replay.inputs.constraints.indices import within
from pytest_msprobe.engine.replay.ops import open_elements
from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.selected_positions import Selection
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators.arguments import refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


@golden("NPU.npu_confusion_transpose")
def npu_confusion_transpose(self: Tensor, perm: Sequence[int], shape: Sequence[int], transpose_first: bool) -> Tensor:
    """Permute by ``perm`` and reshape to ``shape``, or, without ``transpose_first``, the other way round."""
    if transpose_first:
        return self.permute(*perm).reshape(*shape)
    return self.reshape(*shape).permute(*perm)


@golden("Aten.npu_confusion_transpose_backward")
def npu_confusion_transpose_backward(
    grad: Tensor, perm: Sequence[int], shape: Sequence[int], transpose_first: bool
) -> Tensor:
    """Return the gradient of :func:`npu_confusion_transpose`, shaped ``shape``, the shape of the forward's input.

    ``perm`` is the forward's. ``transpose_first`` is the order in *this* call, so the opposite of the
    forward's: undoing "reshape, then permute" begins with the permutation.
    """
    inverse = [list(perm).index(dim) for dim in range(len(perm))]
    if transpose_first:
        return grad.permute(*inverse).reshape(*shape)
    return grad.reshape([shape[dim] for dim in perm]).permute(*inverse)


def _into(out: Tensor | None, result: Tensor) -> Tensor:
    return result if out is None else out.copy_(result)


@golden("NPU.npu_transpose")
def npu_transpose(
    self: Tensor, perm: Sequence[int], require_contiguous: bool = True, *, out: Tensor | None = None
) -> Tensor:
    """Permute the dimensions by ``perm``; ``require_contiguous`` is about memory, not about values."""
    return _into(out, self.permute(*perm).contiguous())


@golden("NPU.npu_reshape")
def npu_reshape(self: Tensor, shape: Sequence[int], can_refresh: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Reshape to ``shape``; ``can_refresh`` has no influence on values."""
    return _into(out, self.reshape(*shape))


@golden("NPU.npu_broadcast")
def npu_broadcast(self: Tensor, size: Sequence[int], *, out: Tensor | None = None) -> Tensor:
    """Broadcast to ``size``."""
    return _into(out, self.broadcast_to(list(size)).contiguous())


@golden("NPU.npu_slice")
def npu_slice(self: Tensor, offsets: Sequence[int], size: Sequence[int], *, out: Tensor | None = None) -> Tensor:
    """Cut out ``size`` elements from ``offsets`` on, along every dimension."""
    part = self[tuple(slice(start, start + length) for start, length in zip(offsets, size, strict=True))]
    return _into(out, part)


@golden("NPU.npu_dtype_cast", OpInfo(leaves_open=open_elements.CAST))
def npu_dtype_cast(self: Tensor, dtype: torch.dtype, input_dtype: int | None = None) -> Tensor:
    """Cast to ``dtype``.

    Raises NotImplementedError for ``input_dtype``, by which the bits of self are read as those of another dtype.
    """
    refuse("npu_dtype_cast", input_dtype=input_dtype)
    return self.to(dtype)


@golden("NPU.npu_format_cast")
def npu_format_cast(
    self: Tensor,
    acl_format: int | None = None,
    *,
    dst: Tensor | None = None,
    customize_dtype: int | None = None,
    input_dtype: int | None = None,
) -> Tensor:
    """Change the device's memory format to ``acl_format``, or to that of the tensor ``dst``: the values stay.

    ``customize_dtype`` and ``input_dtype`` choose the place of elements in memory, which no value shows.
    """
    return self.clone()


@golden("NPU.npu_format_cast_")
def npu_format_cast_(
    self: Tensor,
    acl_format: int | None = None,
    *,
    src: Tensor | None = None,
    customize_dtype: int | None = None,
    input_dtype: int | None = None,
) -> Tensor:
    """Change the device's memory format in place, as :func:`npu_format_cast` with ``src`` for ``dst``."""
    return self


@golden("NPU.one_")
def one_(self: Tensor) -> Tensor:
    """Fill with ones in place."""
    return self.fill_(1)


@golden("NPU.npu_one_hot")
def npu_one_hot(
    self: Tensor, num_classes: int = -1, depth: int = 1, on_value: float = 1, off_value: float = 0
) -> Tensor:
    """Return ``on_value`` where an index equals the position along a new dimension of size ``depth`` (float32).

    ``num_classes`` is the place of the new dimension, whatever its name says. Indices outside of
    [0, depth) give ``off_value`` everywhere.
    """
    hit = self.unsqueeze(-1) == torch.arange(depth, device=self.device)
    return torch.where(hit, float(on_value), float(off_value)).float().movedim(-1, num_classes)


@golden("NPU.npu_sort_v2")
def npu_sort_v2(self: Tensor, dim: int = -1, descending: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Return the values sorted along ``dim``, without their indices; written into ``out`` where given."""
    return _into(out, self.sort(dim, descending=descending).values)


@golden("NPU.npu_max", OpInfo(selection=Selection()))
def npu_max(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Return (maximum along ``dim``, its index as int32)."""
    values, indices = self.max(dim, keepdim)
    return values, indices.int()


@golden("NPU.npu_min", OpInfo(selection=Selection()))
def npu_min(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Return (minimum along ``dim``, its index as int32)."""
    values, indices = self.min(dim, keepdim)
    return values, indices.int()


@golden("NPU.npu_dtype_cast_", OpInfo(leaves_open=open_elements.COPIED))
def npu_dtype_cast_(self: Tensor, src: Tensor) -> Tensor:
    """Write ``src`` into self, in self's dtype."""
    return self.copy_(src)


@golden("NPU.npu_sign_bits_pack")
def npu_sign_bits_pack(self: Tensor, size: int) -> Tensor:
    """Pack the signs of eight numbers each, 0 where negative, into uint8, the first in the lowest bit; (size, n).

    Numbers that are missing at the end count as negative.
    """
    bits = F.pad((self >= 0).int(), (0, -len(self) % 8)).reshape(-1, 8)
    packed = (bits << torch.arange(8, device=self.device)).sum(-1)
    return packed.to(torch.uint8).reshape(size, -1)


@golden("NPU.npu_sign_bits_unpack")
def npu_sign_bits_unpack(input: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    """Undo :func:`npu_sign_bits_pack`: 1 for a bit that is set, -1 for the others; (size, n)."""
    bits = (input.int().unsqueeze(-1) >> torch.arange(8, device=input.device)) & 1
    return (2 * bits - 1).reshape(size, -1).to(dtype)


@golden("NPU.npu_indexing")
def npu_indexing(
    self: Tensor, begin: Sequence[int], end: Sequence[int], strides: Sequence[int], begin_mask: int = 0,
    end_mask: int = 0, ellipsis_mask: int = 0, new_axis_mask: int = 0, shrink_axis_mask: int = 0,
    *, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Slice each dimension i from begin[i] to end[i] by strides[i].

    Bit i of ``begin_mask`` and ``end_mask`` says that there is no such bound, of ``shrink_axis_mask`` that begin[i]
    alone is taken and the dimension goes. Raises NotImplementedError for the other masks and ValueError, by torch, for
    a negative stride.
    """
    refuse("npu_indexing", ellipsis_mask=ellipsis_mask or None, new_axis_mask=new_axis_mask or None)

    def of_dim(i: int) -> slice | int:
        if shrink_axis_mask >> i & 1:
            return begin[i]
        first, last = (None if mask >> i & 1 else bound[i] for mask, bound in ((begin_mask, begin), (end_mask, end)))
        return slice(first, last, strides[i])

    return _into(out, self[tuple(of_dim(i) for i in range(len(begin)))])


@golden("Aten.npu_gather_backward", OpInfo(constraint=within(3, "index", 1, "self_size", 2)))
def npu_gather_backward(grad: Tensor, self_size: Sequence[int], dim: int, index: Tensor, sparse_grad: bool) -> Tensor:
    """Return the gradient of ``torch.gather``: that of each picked element added up where it was, (self_size).

    ``sparse_grad`` has no influence on values.
    """
    return grad.new_zeros(list(self_size)).scatter_add(dim, index.long(), grad)


@golden("Aten.npu_gather_sparse_index_backward", OpInfo(constraint=within(2, "index", 1, "self_sizes")))
def npu_gather_sparse_index_backward(grad: Tensor, self_sizes: Sequence[int], index: Tensor) -> Tensor:
    """Return the gradient of ``npu_gather_sparse_index``: that of each picked row added up where it was."""
    row = list(self_sizes)[1:]
    return grad.new_zeros(list(self_sizes)).index_add(0, index.long().reshape(-1), grad.reshape(-1, *row))


@golden("Aten.npu_max_backward", OpInfo(constraint=within(2, "indices", 3, "sizes", 1)))
def npu_max_backward(grad: Tensor, dim: int, indices: Tensor, sizes: Sequence[int], keepdim: bool) -> Tensor:
    """Return the gradient of ``npu_max``: ``grad`` where the maximum was along ``dim``, 0 everywhere else, (sizes)."""
    if not sizes:
        return grad.clone()
    if not keepdim:
        grad, indices = grad.unsqueeze(dim), indices.unsqueeze(dim)
    return grad.new_zeros(list(sizes)).scatter(dim, indices.long(), grad)


npu_min_backward = golden("Aten.npu_min_backward", OpInfo(constraint=within(2, "indices", 3, "sizes", 1)))(
    npu_max_backward
)


@golden("Aten.npu_dtype_cast_backward")
def npu_dtype_cast_backward(
    grad: Tensor, dtype: torch.dtype, grad_dtype: int | None = None, input_dtype: int | None = None
) -> Tensor:
    """Return the gradient in ``dtype``, that of the tensor that was cast.

    ``grad_dtype`` and ``input_dtype`` name numbers of 8 bits and fewer, which have no gradient.
    """
    return grad.to(dtype)


@golden("Aten._npu_dtype_cast_backward")
def _npu_dtype_cast_backward(grad: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the gradient in ``dtype``, that of the tensor that was cast."""
    return grad.to(dtype)


@golden("Aten._npu_dtype_cast", OpInfo(leaves_open=open_elements.CAST))
def _npu_dtype_cast(self: Tensor, dtype: torch.dtype) -> Tensor:
    """Cast to ``dtype``."""
    return self.to(dtype)


@golden("Aten._npu_format_cast")
def _npu_format_cast(
    self: Tensor, acl_format: int, customize_dtype: int | None = None, input_dtype: int | None = None
) -> Tensor:
    """Change the device's memory format: the values stay.

    ``customize_dtype`` and ``input_dtype`` name the numbers that the bytes are; they are moved as they are.
    """
    return self.clone()
