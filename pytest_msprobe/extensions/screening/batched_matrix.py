"""How a tensor of any number of dimensions lies as a batch of matrices."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Layout:
    """Dimensions in the ``order`` in which they are (batch, ``rows``, ``columns``) once neighbours are joined.

    Those that are to be taken apart first make the shape ``parts``; without it they are as they are.
    """

    order: tuple[int, ...]
    rows: int
    columns: int
    parts: tuple[int, ...] = ()

    def matrices(self, values: torch.Tensor) -> torch.Tensor:
        """Return values of the tensor, or of its gradient, as (batch, rows, columns); a copy where no view is."""
        parts = values.reshape(self.parts) if self.parts else values
        return parts.permute(self.order).reshape(-1, self.rows, self.columns)

    @classmethod
    def of(cls, shape: torch.Size, *, is_joined: bool = False) -> Layout:
        """Return that of a batch of matrices, with all dimensions but the last one joined to rows where asked for."""
        rows = math.prod(shape[:-1]) if is_joined else shape[-2]
        return cls(tuple(range(len(shape))), rows, shape[-1])


@dataclass(frozen=True, slots=True)
class Contraction:
    """An operation on two tensors that is a product of matrices, or a batch of them; ``shape`` is the result's."""

    left: Layout
    right: Layout
    result: Layout
    shape: tuple[int, ...]


def contraction(equation: str, left: torch.Size, right: torch.Size) -> Contraction | None:
    """Return what product an einsum is; None where it is none, broadcasts, or is written with an ellipsis."""
    found = re.fullmatch(r"([a-zA-Z]+),([a-zA-Z]+)(?:->([a-zA-Z]+))?", equation.replace(" ", ""))
    if found is None:
        return None
    ours, theirs, result = found.groups()
    result = result or "".join(sorted(each for each in ours + theirs if (ours + theirs).count(each) == 1))
    if any(len(set(each)) != len(each) for each in (ours, theirs, result)):
        return None
    if (len(ours), len(theirs)) != (len(left), len(right)):
        return None
    sizes = dict(zip(ours, left, strict=True))
    if any(sizes.setdefault(each, size) != size for each, size in zip(theirs, right, strict=True)):
        return None
    batch = "".join(each for each in result if each in ours and each in theirs)
    rows = "".join(each for each in result if each in ours and each not in theirs)
    columns = "".join(each for each in result if each in theirs and each not in ours)
    inner = "".join(each for each in ours if each in theirs and each not in result)
    # A dimension that is summed over in one operand alone, or that no operand has, is in none of these.
    expected = ((ours, batch + rows + inner), (theirs, batch + inner + columns), (result, batch + rows + columns))
    if not (rows and columns and inner) or any({*letters} != {*known} for letters, known in expected):
        return None
    return Contraction(
        _layout(ours, batch, rows, inner, sizes),
        _layout(theirs, batch, inner, columns, sizes),
        _layout(result, batch, rows, columns, sizes),
        tuple(sizes[each] for each in result),
    )


def _layout(letters: str, batch: str, rows: str, columns: str, sizes: Mapping[str, int]) -> Layout:
    order = tuple(letters.index(each) for each in batch + rows + columns)
    return Layout(order, math.prod(sizes[each] for each in rows), math.prod(sizes[each] for each in columns))
