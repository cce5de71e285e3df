"""Elements along axes: joined, split, picked, given another shape, or one value of many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    picked = torch.stack([functional.gather(row, row_indices, axis - batch_dims) for row, row_indices in pairs])
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
    return F.pad(x, [amount for pair in reversed(paddings) for amount in pair])


def reduction(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the reduction along one axis or several, along all where none is named."""

    def reduce(x: Tensor, axis: int | Sequence[int] = (), *, keep_dims: bool) -> Tensor:
        axes = [axis] if isinstance(axis, int) else list(axis) or list(range(x.dim()))
        return function(x, axes, keepdim=keep_dims)

    return reduce


def total(x: Tensor, axis: int | Sequence[int] = (), *, keep_dims: bool, skip_mode: bool) -> Tensor:
    """Return the sum along axes; where none is named, that of all, or with ``skip_mode`` the input as it is."""
    if skip_mode and not isinstance(axis, int) and not axis:
        return x.clone()
    return reduction(torch.sum)(x, axis, keep_dims=keep_dims)


def product(x: Tensor, axes: Sequence[int], *, keepdim: bool) -> Tensor:
    """Return the product along axes."""
    for axis in sorted((axis % x.dim() for axis in axes), reverse=True):
        x = x.prod(axis, keepdim=keepdim)
    return x


def with_place(function: Callable[..., Any]) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return the extremum along an axis as MindSpore gives it: its place before its value."""

    def extremum(x: Tensor, *, axis: int, keep_dims: bool) -> tuple[Tensor, Tensor]:
        value, place = function(x, axis, keep_dims)
        return place, value

    return extremum


def place_of(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the place of the extremum along an axis."""

    def place(x: Tensor, *, axis: int, output_type: Any = None) -> Tensor:
        return function(x, axis)

    return place


def cumsum(x: Tensor, axis: int, *, exclusive: bool, reverse: bool) -> Tensor:
    """Return sums of all elements so far along an axis; without the element itself, or from the end."""
    axis = int(axis)
    ordered = x.flip(axis) if reverse else x
    sums = ordered.cumsum(axis)
    sums = sums - ordered if exclusive else sums
    return sums.flip(axis) if reverse else sums


def topk(x: Tensor, k: int, *, sorted: bool) -> Any:  # noqa: A002
    """Return the greatest elements along the last axis and their places."""
    return torch.topk(x, int(k), sorted=sorted)
