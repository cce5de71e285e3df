"""Rows picked out and written by their indices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_msprobe.extensions.npu_operators.reference_arguments import refuse
from pytest_msprobe.extensions.npu_operators.twins import out_of_place

if TYPE_CHECKING:
    from torch import Tensor


def npu_scatter_nd_update_(self: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """Write ``updates`` (..., rest) to the places of self whose first coordinates are the rows of ``indices``."""
    self[tuple(indices.long().unbind(-1))] = updates
    return self


npu_scatter_nd_update = out_of_place(npu_scatter_nd_update_)


def scatter_update_(self: Tensor, indices: Tensor, updates: Tensor, axis: int) -> Tensor:
    """Write updates[b] into self[b] from indices[b] on along ``axis``, as a cache of keys is filled.

    Raises NotImplementedError for two-dimensional ``indices``, which name other entries than b.
    """
    refuse("scatter_update", indices_of_two_dimensions=indices if indices.dim() > 1 else None)
    along = axis % self.dim() - 1
    for entry, start in enumerate(indices.reshape(-1).tolist()):
        self[entry].narrow(along, start, updates.shape[axis]).copy_(updates[entry])
    return self


scatter_update = out_of_place(scatter_update_)


def npu_gather_sparse_index(input: Tensor, index: Tensor) -> Tensor:
    """Return the rows of ``input`` that ``index`` names, shaped as index and then as a row."""
    return input[index.long()]
