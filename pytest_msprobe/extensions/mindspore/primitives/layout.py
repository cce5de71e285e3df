"""Elements in other places: joined, split, picked, or given another shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_msprobe.extensions.mindspore import functional


def shape(x: Tensor) -> tuple[int, ...]:
    """Return the sizes of a tensor."""
    return tuple(x.shape)


def dtype(x: Tensor) -> str:
    """Return MindSpore's name of a tensor's dtype."""
    # All else is defined where there is no MindSpore.
    from pytest_msprobe.extensions.mindspore.jit_functions import mindspore_dtype

    return str(mindspore_dtype(x.dtype))


def concat(*tensors: Any, axis: int) -> Tensor:
    """Return tensors, given one by one or as one sequence, joined along an axis."""
    return torch.cat(_one_by_one(tensors), axis)


def stack(*tensors: Any, axis: int) -> Tensor:
    """Return tensors, given one by one or as one sequence, joined along a new axis."""
    return torch.stack(_one_by_one(tensors), axis)


def _one_by_one(tensors: Sequence[Any]) -> list[Tensor]:
    return list(tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors)


def split(x: Tensor, *, axis: int, output_num: int) -> tuple[Tensor, ...]:
    """Return equal parts along an axis."""
    return torch.split(x, x.shape[axis] // output_num, axis)


def unstack(x: Tensor, *, axis: int) -> tuple[Tensor, ...]:
    """Return the slices along an axis, without it."""
    return x.unbind(axis)


def squeeze(x: Tensor, *, axis: int | Sequence[int]) -> Tensor:
    """Return the tensor without axes of size 1: those that are named, all where none is."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    return x.squeeze(axes) if axes else x.squeeze()


def gather(params: Tensor, indices: Tensor, axis: int, *, batch_dims: int) -> Tensor:
    """Return slices at the indices along an axis, separately for each of the leading ``batch_dims`` axes."""
    axis = int(axis) % params.dim()
    if batch_dims == 0:
        return functional.gather(params, indices, axis)
    rows, places = params.flatten(0, batch_dims - 1), indices.flatten(0, batch_dims - 1)
    pairs = zip(rows, places, strict=True)
    picked = torch.stack([functional.gather(row, each, axis - batch_dims) for row, each in pairs])
    return picked.reshape(*params.shape[:batch_dims], *picked.shape[1:])


def one_hot(indices: Tensor, depth: int, on_value: Any, off_value: Any, *, axis: int) -> Tensor:
    """Return ``on_value`` where the new axis has the index, ``off_value`` otherwise."""
    return functional.one_hot(indices, int(depth), on_value, off_value, axis)


def broadcast_to(x: Tensor, *, shape: Sequence[int]) -> Tensor:
    """Return the tensor repeated to a shape, of which -1 keeps the axis as it is."""
    return x.expand(*shape)


def reverse(x: Tensor, *, axis: Sequence[int]) -> Tensor:
    """Return the tensor with axes run through from their end."""
    return x.flip(list(axis))


def slice_of(x: Tensor, begin: Sequence[int], size: Sequence[int]) -> Tensor:
    """Return the block of a size that begins somewhere; a size of -1 reaches to the end."""
    return x[tuple(slice(at, None if n == -1 else at + n) for at, n in zip(begin, size, strict=True))]


def strided_slice(
    x: Tensor,
    begin: Sequence[int],
    end: Sequence[int],
    strides: Sequence[int],
    *,
    begin_mask: int,
    end_mask: int,
    ellipsis_mask: int,
    new_axis_mask: int,
    shrink_axis_mask: int,
) -> Tensor:
    """Return what slices pick; a bit of a mask says of its axis that it has no begin, no end, or is one position."""
    if ellipsis_mask or new_axis_mask or any(step < 0 for step in strides):
        raise NotImplementedError("StridedSlice with an ellipsis, new axes or steps back has no golden definition")

    def part(axis: int) -> int | slice:
        if shrink_axis_mask >> axis & 1:
            return begin[axis]
        first, last = (mask >> axis & 1 for mask in (begin_mask, end_mask))
        return slice(None if first else begin[axis], None if last else end[axis], strides[axis])

    return x[tuple(map(part, range(len(begin))))]


def pad(x: Tensor, *, paddings: Sequence[Sequence[int]]) -> Tensor:
    """Return the tensor with zeros before and behind each axis."""
    return F.pad(x, [each for pair in reversed(paddings) for each in pair])
