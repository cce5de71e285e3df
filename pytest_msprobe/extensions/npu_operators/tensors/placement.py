"""Operators that fill, pad, place and add parts of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from msprobe_hooks.dump.effects import Effects
from pytest_msprobe.engine.replay.inputs.constraints.indices import listed, ranges, wrap
from pytest_msprobe.engine.replay.ops import several_writers
from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators.arguments import out_of_place, refuse
from pytest_msprobe.extensions.npu_operators.inputs import moe_routing as routing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from pytest_msprobe.engine.replay.inputs.constraints.drawn import DrawnArguments

# A block of channels in the device's memory format NC1HWC0.
_CHANNELS = 16


@golden("NPU.npu_masked_fill_range", OpInfo(constraint=ranges))
def npu_masked_fill_range(self: Tensor, start: Tensor, end: Tensor, value: Tensor, axis: int = -1) -> Tensor:
    """Fill from start[i, j] to end[i, j] along ``axis`` with value[i]; start and end are (ranges, rows).

    Along the last of several dimensions, entry j is about row j of the first one; along another one, each is about all
    rows. Where ranges overlap the last one counts. As op-plugin's own test of the operator computes it.
    """
    out = self.clone()
    by_row = axis % self.dim() == self.dim() - 1 and self.dim() > 1
    for first, last, filling in zip(start.tolist(), end.tolist(), value, strict=True):
        for row, (begin, behind) in enumerate(zip(first, last, strict=True)):
            if behind > begin:
                # a row has lost the first dimension
                part = out[row].narrow(-1, begin, behind - begin) if by_row else out.narrow(axis, begin, behind - begin)
                part.copy_(filling.expand_as(part))
    return out


@golden("NPU.npu_pad")
def npu_pad(input: Tensor, paddings: Sequence[int]) -> Tensor:
    """Add paddings[2 i] zeros before and paddings[2 i + 1] behind dimension i; those that are not given are 0."""
    widths = [*paddings, *[0] * (2 * input.dim() - len(paddings))]
    pairs = [widths[at : at + 2] for at in range(0, len(widths), 2)]
    return F.pad(input, [width for pair in reversed(pairs) for width in pair])


def _placed_along_dim(drawn: DrawnArguments) -> None:
    """Map the indices of ``(self, indices, updates, dim)`` into that dimension."""
    target, dim = drawn.tensor(0, "self"), drawn.get(3, "dim")
    if target is not None and isinstance(dim, int):
        wrap(drawn.tensor(1, "indices"), target.shape[dim])


@golden("NPU.npu_scatter", OpInfo(constraint=_placed_along_dim))
def npu_scatter(self: Tensor, indices: Tensor, updates: Tensor, dim: int) -> Tensor:
    """Return ``self`` with ``updates`` where ``indices`` say along ``dim``, one for each place of the other dimensions.

    Both lack that dimension, as the indices of a maximum do, or have all of them, as in ``torch.scatter``.
    """
    if not indices.numel():
        return self.clone()
    if indices.dim() < self.dim():
        indices, updates = indices.unsqueeze(dim), updates.unsqueeze(dim)
    return self.scatter(dim, indices.long(), updates.to(self.dtype))


@golden("NPU.npu_scatter_list_", OpInfo(constraint=listed))
def npu_scatter_list_(
    self: Sequence[Tensor],
    indices: Tensor,
    updates: Tensor,
    mask: Tensor | None = None,
    reduce: str = "update",
    axis: int = -2,
) -> None:
    """Write updates[i] into self[i] from indices[i] on along ``axis``, where mask[i] is not 0.

    Raises NotImplementedError for two-dimensional ``indices`` and another ``reduce`` than update.
    """
    refuse(
        "npu_scatter_list",
        indices_of_two_dimensions=indices if indices.dim() > 1 else None,
        reduce=None if reduce == "update" else reduce,
    )
    for i, target in enumerate(self):
        if mask is None or bool(mask[i]):
            target.narrow(axis, int(indices[i]), updates[i].shape[axis]).copy_(updates[i])


@golden("NPU.npu_scatter_list", OpInfo(constraint=listed))
def npu_scatter_list(
    self: Sequence[Tensor],
    indices: Tensor,
    updates: Tensor,
    mask: Tensor | None = None,
    reduce: str = "update",
    axis: int = -2,
) -> list[Tensor]:
    """Return copies of the tensors after :func:`npu_scatter_list_`."""
    copies = [each.clone() for each in self]
    npu_scatter_list_(copies, indices, updates, mask, reduce, axis)
    return copies


@golden("NPU.npu_stride_add")
def npu_stride_add(self: Tensor, other: Tensor, offset1: float, offset2: float, c1_len: float) -> Tensor:
    """Add ``c1_len`` blocks of 16 channels, from block ``offset1`` of self and ``offset2`` of other on.

    Dimension 1 holds the channels, which are filled up with zeros to whole blocks; the other dimensions broadcast. The
    documentation speaks of the format NC1HWC0 and shows the one that is assumed here.
    """

    def blocks(x: Tensor, offset: int) -> Tensor:
        behind = (offset + int(c1_len)) * _CHANNELS
        missing = max(behind - x.shape[1], 0)
        filled = torch.cat((x, x.new_zeros(x.shape[0], missing, *x.shape[2:])), 1)
        return filled[:, offset * _CHANNELS : behind]

    return blocks(self, int(offset1)) + blocks(other, int(offset2))


@golden("NPU.npu_stride_copy")
def npu_stride_copy(
    self: Tensor, shape: Sequence[int], stride: Sequence[int], storage_offset: float, *, out: Tensor | None = None
) -> Tensor:
    """Copy what ``torch.as_strided`` shows of a contiguous tensor; written into ``out`` where given."""
    seen = self.contiguous().as_strided(list(shape), list(stride), int(storage_offset))
    return seen.clone() if out is None else out.copy_(seen)


@golden("NPU.npu_view_copy", OpInfo(in_place=True))
def npu_view_copy(self: Tensor, other: Tensor, non_blocking: bool) -> Tensor:
    """Write ``other`` into self, whatever strides both have; ``non_blocking`` has no influence on values."""
    return self.copy_(other)


def _rows_to_add(drawn: DrawnArguments) -> None:
    """Map an index into the rows that are added to."""
    target = drawn.tensor(0, "self")
    if target is not None:
        wrap(drawn.tensor(1, "index"), target.shape[0])


@golden("Aten._npu_index_add_", OpInfo(constraint=_rows_to_add))
def _npu_index_add_(self: Tensor, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """Add alpha * source to the rows of self that ``index`` names; source is shaped as index and then as a row."""
    row = list(self.shape[1:])
    return self.index_add_(0, index.long().reshape(-1), source.reshape(-1, *row).to(self.dtype), alpha=alpha)


_npu_index_add = golden("Aten._npu_index_add", OpInfo(constraint=_rows_to_add))(out_of_place(_npu_index_add_))


@golden("NPU.npu_alloc_float_status")
def npu_alloc_float_status(self: Tensor) -> Tensor:
    """Return 8 zeros in float32, in which a card's overflow bits have room; ``self`` only says on which card."""
    return torch.zeros(8, dtype=torch.float32, device=self.device)


@golden(
    "NPU.npu_scatter_nd_update_",
    OpInfo(constraint=routing.scatter_nd, writers=several_writers.SCATTERED_SLICES),
    Effects(carries=True),
)
def npu_scatter_nd_update_(self: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """Write ``updates`` (..., rest) to the places of self whose first coordinates are the rows of ``indices``."""
    self[tuple(indices.long().unbind(-1))] = updates
    return self


npu_scatter_nd_update = golden(
    "NPU.npu_scatter_nd_update",
    OpInfo(constraint=routing.scatter_nd, writers=several_writers.SCATTERED_SLICES),
    Effects(carries=True),
)(out_of_place(npu_scatter_nd_update_))


@golden("NPU.scatter_update_", OpInfo(constraint=routing.scatter_update))
def scatter_update_(self: Tensor, indices: Tensor, updates: Tensor, axis: int) -> Tensor:
    """Write updates[b] into self[b] from indices[b] on along ``axis``, as a cache of keys is filled.

    Raises NotImplementedError for two-dimensional ``indices``, which name other entries than b.
    """
    refuse("scatter_update", indices_of_two_dimensions=indices if indices.dim() > 1 else None)
    along = axis % self.dim() - 1
    for entry, start in enumerate(indices.reshape(-1).tolist()):
        self[entry].narrow(along, start, updates.shape[axis]).copy_(updates[entry])
    return self


scatter_update = golden("NPU.scatter_update", OpInfo(constraint=routing.scatter_update))(out_of_place(scatter_update_))


@golden("NPU.npu_gather_sparse_index", OpInfo(constraint=routing.rows_of(0, "input", 1, "index")))
def npu_gather_sparse_index(input: Tensor, index: Tensor) -> Tensor:
    """Return the rows of ``input`` that ``index`` names, shaped as index and then as a row."""
    return input[index.long()]
