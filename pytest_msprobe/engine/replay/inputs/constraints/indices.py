"""Constraints on drawn indices: in range, and distinct where an API writes to the places that they name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from pytest_msprobe.engine.replay.inputs.constraints.drawn import Constraint, DrawnArguments


def wrap(index: torch.Tensor | None, size: int, *, negative: bool = False) -> None:
    """Map integer indices into [0, size), or into [-size, size) where negative ones count from the end."""
    if index is None or index.dtype is torch.bool or index.is_floating_point() or size <= 0:
        return
    outside = (index < (-size if negative else 0)) | (index >= size)
    if bool(outside.any()):
        index[outside] = index[outside] % size


def embedding(drawn: DrawnArguments) -> None:
    """Map the indices of an embedding into its table; torch.nn.functional and ATen order the two differently."""
    index, weight = drawn.tensor(0, "input", "indices"), drawn.tensor(1, "weight")
    if index is not None and index.is_floating_point():
        index, weight = drawn.tensor(1, "indices"), index
    if weight is not None:
        wrap(index, weight.shape[0])


def embedding_bag(drawn: DrawnArguments) -> None:
    """Make the bags of an embedding start at 0 and follow each other."""
    embedding(drawn)
    first, second = drawn.tensor(0, "input"), drawn.tensor(1, "weight")
    index = second if first is not None and first.is_floating_point() else first
    offsets = drawn.tensor(2, "offsets")
    if offsets is not None and index is not None and offsets.numel():
        offsets.copy_((offsets.abs() % (index.numel() + 1)).sort().values)
        offsets[0] = 0
        # ATen has not the limits of a norm before it, which torch.nn.functional has.
        if drawn.get(7 if index is second else 9, "include_last_offset"):
            offsets[-1] = index.numel()


def of_embedding_gradient(drawn: DrawnArguments) -> None:
    """Map the indices of ``(grad, indices, num_weights)`` into the rows of the table."""
    rows = drawn.get(2, "num_weights")
    if isinstance(rows, int):
        wrap(drawn.tensor(1, "indices"), rows)


def of_rows(drawn: DrawnArguments) -> None:
    """Map the indices of ``(self, indices)`` into the rows of the first argument."""
    table = drawn.tensor(0, "self")
    if table is not None and table.dim():
        wrap(drawn.tensor(1, "indices"), table.shape[0])


def along_dim_of(source_at: int, dim_at: int, index_at: int) -> Constraint:
    """Map indices into a dimension of what they index; the arguments are positions."""

    def constraint(drawn: DrawnArguments) -> None:
        source, dim = drawn.tensor(source_at, "input"), drawn.get(dim_at, "dim")
        if source is not None and isinstance(dim, int):
            wrap(drawn.tensor(index_at, "index"), source.shape[dim] if source.dim() else 1)

    return constraint


#: Of ``(input, dim, index)``.
along_dim = along_dim_of(0, 1, 2)


def of_pooling_gradient(spatial: int, indices_at: int) -> Constraint:
    """Map indices into the planes, of that many dimensions, that were pooled: the second argument."""

    def constraint(drawn: DrawnArguments) -> None:
        source = drawn.tensor(1, "self")
        if source is not None:
            wrap(drawn.tensor(indices_at, "indices"), math.prod(source.shape[-spatial:]))

    return constraint


def slices(drawn: DrawnArguments) -> None:
    """Map the indices of MindSpore's ``Gather(params, indices, axis)`` into that dimension."""
    source, index, axis = drawn.tensor(0, "params"), drawn.tensor(1, "indices"), drawn.get(2, "axis")
    if source is not None and isinstance(axis, int):
        wrap(index, source.shape[axis])


def take_along_dim(drawn: DrawnArguments) -> None:
    """Map the indices of ``(input, indices, dim)`` into that dimension, or into the flattened input."""
    source, index, dim = drawn.tensor(0, "input"), drawn.tensor(1, "indices"), drawn.get(2, "dim")
    if source is not None:
        wrap(index, source.shape[dim] if isinstance(dim, int) else source.numel())


def written_along_dim(drawn: DrawnArguments) -> None:
    """Make places distinct where the API writes to them: which of two writers wins is not defined."""
    along_dim(drawn)
    target, dim, index = drawn.tensor(0, "input"), drawn.get(1, "dim"), drawn.tensor(2, "index")
    if target is None or index is None or not isinstance(dim, int) or not (target.dim() and index.dim()):
        return
    size, axis = target.shape[dim], dim if index.dim() > 1 else 0
    if 0 < index.shape[axis] <= size:
        places = list(index.shape)
        places[axis] = size
        order = torch.rand(places, generator=drawn.generator).argsort(dim=axis)
        index.copy_(order.narrow(axis, 0, index.shape[axis]))


def take(drawn: DrawnArguments) -> None:
    """Map indices into the flattened input."""
    source, index = drawn.tensor(0, "input"), drawn.tensor(1, "index")
    if source is not None:
        wrap(index, source.numel(), negative=True)


def put(drawn: DrawnArguments) -> None:
    """Map indices into the flattened input, each at most once unless what is put there is added up."""
    take(drawn)
    target, index = drawn.tensor(0, "input"), drawn.tensor(1, "index")
    if target is not None and index is not None and not drawn.get(3, "accumulate"):
        _make_distinct([index], [target.numel()], drawn.generator)


def indexing(drawn: DrawnArguments) -> None:
    """Map each index tensor into the range of the dimension that it indexes, and masks to the count that fits."""
    source = drawn.tensor(0, "input")
    if source is not None:
        tensors, sizes, masks = _index_tensors(source, drawn.get(1, "indices"))
        for tensor, size in zip(tensors, sizes, strict=True):
            wrap(tensor, size, negative=True)
        if len(masks) == 1 and tensors and tensors[0].numel() > 1:
            _keep(masks[0], tensors[0].numel(), drawn.generator)


def written_indexing(drawn: DrawnArguments) -> None:
    """Draw as ``indexing``, with distinct places, and masks that select as many places as there are values."""
    indexing(drawn)
    target, values = drawn.tensor(0, "input"), drawn.tensor(2, "values")
    if target is None or drawn.get(3, "accumulate"):
        return
    tensors, sizes, masks = _index_tensors(target, drawn.get(1, "indices"))
    if len(masks) == 1 and not tensors and values is not None:
        rest = target.dim() - masks[0].dim()
        if values.dim() == rest + 1 and values.shape[0] != 1:
            _keep(masks[0], values.shape[0], drawn.generator)
    if tensors and not masks:
        _make_distinct(tensors, sizes, drawn.generator)


def _index_tensors(source: torch.Tensor, index: Any) -> tuple[list[torch.Tensor], list[int], list[torch.Tensor]]:
    """Return the integer index tensors, the sizes of the dimensions that they index, and the masks."""
    parts = index if isinstance(index, (list, tuple)) else [index]
    # In ATen's lists None stands for a whole dimension, in Python's tuples for a new one.
    consumed = [_consumed(part, of_none=isinstance(index, list)) for part in parts]
    tensors, sizes, masks, dim = [], [], [], 0
    for part, count in zip(parts, consumed, strict=True):
        if part is ...:
            dim += source.dim() - sum(consumed)
        elif _is_mask(part):
            masks.append(part)
        elif isinstance(part, torch.Tensor) and dim < source.dim():
            tensors.append(part)
            sizes.append(source.shape[dim])
        dim += count
    return tensors, sizes, masks


def _consumed(part: Any, *, of_none: bool) -> int:
    """Return how many dimensions one part of an index takes up."""
    if part is None:
        return int(of_none)
    if part is ...:
        return 0
    return int(part.dim()) if _is_mask(part) else 1


def _is_mask(part: object) -> bool:
    return isinstance(part, torch.Tensor) and part.dtype in (torch.bool, torch.uint8)


def _keep(mask: torch.Tensor, count: int, generator: torch.Generator) -> None:
    """Make a mask select ``count`` places, where it has as many."""
    if count <= mask.numel():
        mask.zero_().view(-1)[torch.randperm(mask.numel(), generator=generator)[:count]] = 1


def _make_distinct(indices: list[torch.Tensor], sizes: list[int], generator: torch.Generator) -> None:
    """Make index tensors of one shape name each place at most once, where there are as many places."""
    shape, count, places = indices[0].shape, indices[0].numel(), math.prod(sizes)
    if not 0 < count <= places or any(index.shape != shape for index in indices):
        return
    flat = torch.randperm(places, generator=generator)[:count].view(shape)
    for index, size in zip(reversed(indices), reversed(sizes), strict=True):
        index.copy_(flat % size)
        flat = flat // size


def class_target_of(scores_at: int, ignored_at: int | None = 4) -> Constraint:
    """Map class indices, behind the scores, into the number of classes.

    What is to be ignored stays, everywhere if it was recorded so.
    """

    def constraint(drawn: DrawnArguments) -> None:
        scores, target = drawn.tensor(scores_at, "input", "self"), drawn.tensor(scores_at + 1, "target")
        if scores is None or target is None or target.is_floating_point():
            return
        classes = scores.shape[0 if scores.dim() == 1 else 1]
        ignored = None if ignored_at is None else drawn.get(ignored_at, "ignore_index")
        ignored = ignored if isinstance(ignored, int) else -100
        outside = ((target < 0) | (target >= classes)) & (target != ignored)
        target[outside] = target[outside] % classes

    return constraint


class_target = class_target_of(0)


def several_class_targets(scores_at: int) -> Constraint:
    """Map lists of class indices, behind the scores, into the number of classes; -1 ends a list."""

    def constraint(drawn: DrawnArguments) -> None:
        scores, target = drawn.tensor(scores_at, "input", "self"), drawn.tensor(scores_at + 1, "target")
        if scores is not None and scores.dim() and target is not None and not target.is_floating_point():
            outside = (target < -1) | (target >= scores.shape[-1])
            target[outside] = target[outside] % scores.shape[-1]

    return constraint


def one_hot(drawn: DrawnArguments) -> None:
    """Map class numbers into [0, classes)."""
    index, classes = drawn.tensor(0, "tensor", "input"), drawn.get(1, "num_classes")
    if index is not None:
        index.abs_()
        if isinstance(classes, int) and classes > 0:
            wrap(index, classes)


def ranges(drawn: DrawnArguments) -> None:
    """Map the ends of ranges into the dimension, the lower one first."""
    filled, start, end = drawn.tensor(0, "self"), drawn.tensor(1, "start"), drawn.tensor(2, "end")
    axis = drawn.get(4, "axis")
    if filled is None or start is None or end is None or not filled.dim():
        return
    for each in (start, end):
        wrap(each, filled.shape[-1 if axis is None else axis] + 1)
    low, high = torch.minimum(start, end), torch.maximum(start, end)
    start.copy_(low)
    end.copy_(high)


def listed(drawn: DrawnArguments) -> None:
    """Leave room in each of the listed tensors for what is written there."""
    targets, updates, axis = drawn.get(0, "self"), drawn.tensor(2, "updates"), drawn.get(5, "axis")
    if isinstance(targets, Sequence) and targets and isinstance(targets[0], torch.Tensor) and updates is not None:
        along = -2 if axis is None else axis
        # updates have the list's dimension before those of the tensors
        width = updates[0].shape[along]
        wrap(drawn.tensor(1, "indices"), targets[0].shape[along] - width + 1)


def within(index_at: int, index: str, sizes_at: int, sizes: str, dim_at: int | None = None) -> Constraint:
    """Map an index into the dimension ``dim``, by its position, of sizes that are given; the first one without."""

    def constraint(drawn: DrawnArguments) -> None:
        shape, dim = drawn.get(sizes_at, sizes), 0 if dim_at is None else drawn.get(dim_at, "dim")
        if isinstance(shape, Sequence) and shape and isinstance(dim, int):
            wrap(drawn.tensor(index_at, index), shape[dim])

    return constraint
