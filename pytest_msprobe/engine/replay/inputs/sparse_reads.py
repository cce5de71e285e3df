"""Sparse reads: the elements of a large operand that a call reads, where its other arguments say so.

The rest of the operand is left out when it is drawn: no result depends on it, and gradients do not either.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from pytest_msprobe.engine.replay.inputs.constraints.drawn import DrawnArguments
from pytest_msprobe.engine.replay.inputs.large_tensors import Undrawn
from pytest_msprobe.engine.replay.inputs.philox import GROUP

_INDICES = (torch.int32, torch.int64)


class Read(NamedTuple):
    """Part read of a contiguous operand: ``length`` neighbouring elements from each of ``starts`` (int64) on."""

    operand: torch.Tensor
    starts: torch.Tensor
    length: int

    def groups(self) -> npt.NDArray[np.bool_]:
        """Return which of its groups of `GROUP` neighbouring elements hold something that is read."""
        count = -(-self.operand.numel() // GROUP)
        starts = self.starts.reshape(-1).numpy()
        # One more from where a run begins, one less behind where it ends: what is not 0 in between is read.
        begun = np.bincount(starts // GROUP, minlength=count + 1)
        ended = np.bincount((starts + self.length - 1) // GROUP + 1, minlength=count + 1)
        return np.cumsum(begun - ended)[:count] > 0


#: Returns what an operation reads of one of its operands; None where it reads all, or where that cannot be known.
Reads: TypeAlias = Callable[[DrawnArguments], "Read | None"]


def draw_what_is_read(undrawn: Iterable[Undrawn], reads: Reads, drawn: DrawnArguments) -> None:
    """Draw the large ones among the arguments of a call: where they are read, all of those of which that is unknown."""
    read = reads(drawn)
    for operand in undrawn:
        operand.draw(read.groups() if read is not None and read.operand is operand.tensor else None)


def embedding(drawn: DrawnArguments) -> Read | None:
    """Return the rows of an embedding's table; torch.nn.functional and ATen order index and table differently."""
    index, table = drawn.tensor(0, "input", "indices"), drawn.tensor(1, "weight")
    if index is not None and index.is_floating_point():
        index, table = drawn.tensor(1, "indices"), index
    # Rows are written to where there is a max_norm, so that all are judged. ATen has a switch at its place.
    norm = drawn.get(3, "max_norm")
    return _slices(table, index, 0) if norm is None or isinstance(norm, bool) else None


def selected(drawn: DrawnArguments) -> Read | None:
    """Return what ``index_select(input, dim, index)`` takes."""
    source, dim, index = drawn.tensor(0, "input"), drawn.get(1, "dim"), drawn.tensor(2, "index")
    return _slices(source, index, dim)


def gathered(drawn: DrawnArguments) -> Read | None:
    """Return what ``gather(input, dim, index)`` takes."""
    source, dim, index = drawn.tensor(0, "input"), drawn.get(1, "dim"), drawn.tensor(2, "index")
    if source is None or index is None or index.dim() != source.dim() or not _is_within(source, index, dim, 1):
        return None
    axis = dim % source.dim()
    starts = index.long() * source.stride(axis)
    for other in range(source.dim()):
        if other != axis:
            along = [1] * source.dim()
            along[other] = index.shape[other]
            starts = starts + torch.arange(index.shape[other]).view(along) * source.stride(other)
    return Read(source, starts, 1)


def indexed(drawn: DrawnArguments) -> Read | None:
    """Return the rows that ``input[index]`` takes, where one tensor of whole numbers is all of the index."""
    source, index = drawn.tensor(0, "input"), drawn.get(1, "indices")
    if isinstance(index, (list, tuple)) and len(index) == 1:
        [index] = index
    if source is None or not source.dim() or not isinstance(index, torch.Tensor) or index.dtype not in _INDICES:
        return None
    return _slices(source, torch.where(index < 0, index + source.shape[0], index), 0)


def slices(drawn: DrawnArguments) -> Read | None:
    """Return what MindSpore's ``Gather(params, indices, axis)`` takes."""
    return _slices(drawn.tensor(0, "params"), drawn.tensor(1, "indices"), drawn.get(2, "axis"))


def _slices(source: torch.Tensor | None, index: torch.Tensor | None, dim: object) -> Read | None:
    if source is None or index is None or not isinstance(dim, int) or not -source.dim() <= dim < source.dim():
        return None
    axis = dim % source.dim()
    before, length = math.prod(source.shape[:axis]), math.prod(source.shape[axis + 1 :])
    if not _is_within(source, index, dim, before):
        return None
    rows = torch.arange(before).view(-1, 1) * source.shape[axis] + index.long().reshape(1, -1)
    return Read(source, rows * length, length)


def _is_within(source: torch.Tensor, index: torch.Tensor, dim: object, times: int) -> bool:
    """Return whether whole numbers lie in a dimension, and so many times as many are fewer than are drawn at once."""
    if not isinstance(dim, int) or not -source.dim() <= dim < source.dim() or index.dtype not in _INDICES:
        return False
    if not 0 < index.numel() * times <= source.numel() // GROUP:
        return False
    return int(index.min()) >= 0 and int(index.max()) < source.shape[dim]
