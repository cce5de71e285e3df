"""Constraints on drawn places of NPU operators that pick and place: within the dimension that they count in."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pytest_msprobe.engine.replay.inputs.constraints.drawn import Constraint, DrawnArguments
from pytest_msprobe.engine.replay.inputs.constraints.indices import wrap


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


def placed_along_dim(drawn: DrawnArguments) -> None:
    """Map the indices of ``(self, indices, updates, dim)`` into that dimension."""
    target, dim = drawn.tensor(0, "self"), drawn.get(3, "dim")
    if target is not None and isinstance(dim, int):
        wrap(drawn.tensor(1, "indices"), target.shape[dim])


def listed(drawn: DrawnArguments) -> None:
    """Leave room in each of the listed tensors for what is written there."""
    targets, updates, axis = drawn.get(0, "self"), drawn.tensor(2, "updates"), drawn.get(5, "axis")
    if isinstance(targets, Sequence) and targets and isinstance(targets[0], torch.Tensor) and updates is not None:
        along = -2 if axis is None else axis
        # updates have the list's dimension before those of the tensors
        width = updates[0].shape[along]
        wrap(drawn.tensor(1, "indices"), targets[0].shape[along] - width + 1)


def rows_to_add(drawn: DrawnArguments) -> None:
    """Map an index into the rows that are added to."""
    target = drawn.tensor(0, "self")
    if target is not None:
        wrap(drawn.tensor(1, "index"), target.shape[0])


def within(index_at: int, index: str, sizes_at: int, sizes: str, dim_at: int | None = None) -> Constraint:
    """Map an index into the dimension ``dim``, by its position, of sizes that are given; the first one without."""

    def constraint(drawn: DrawnArguments) -> None:
        shape, dim = drawn.get(sizes_at, sizes), 0 if dim_at is None else drawn.get(dim_at, "dim")
        if isinstance(shape, Sequence) and shape and isinstance(dim, int):
            wrap(drawn.tensor(index_at, index), shape[dim])

    return constraint
