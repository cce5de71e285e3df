"""Passes over a large matrix in blocks that are widened one by one, with its sums by tiles of neighbouring rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeAlias

import torch

#: Neighbouring rows, or columns, that share one residual and have one of them computed exactly.
TILE = 128

#: Blocks are one tile by so many elements that neighbour each other in memory: shorter ones cost more calls and are
#: read slower, longer ones leave the processor's cache.
LENGTH = 32 * TILE


class Gathered(Protocol):
    """A matrix that is made block by block, of which some rows can be read alone."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @property
    def mT(self) -> Gathered:  # noqa: N802 - torch's name
        """The transposed matrix."""

    def __getitem__(self, rows: torch.Tensor) -> torch.Tensor: ...

    def blocks(self, dtype: torch.dtype) -> Iterator[tuple[slice, slice, torch.Tensor]]:
        """Yield what `blocks` does of a tensor."""


Matrix: TypeAlias = torch.Tensor | Gathered


def tiles(count: int) -> int:
    """Return how many tiles so many rows are."""
    return -(-count // TILE)


def slices(count: int, size: int = TILE) -> list[slice]:
    """Return slices of a size that are all of so many rows."""
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def blocks(matrix: Matrix, dtype: torch.dtype) -> Iterator[tuple[slice, slice, torch.Tensor]]:
    """Yield rows, columns and values of all blocks of a matrix, in a dtype; a block is overwritten by the next.

    Both begin and end with tiles. A block lies in memory as the matrix does: a transposing copy takes five times as
    long.
    """
    if not isinstance(matrix, torch.Tensor):
        yield from matrix.blocks(dtype)
        return
    is_transposed = matrix.stride(0) < matrix.stride(1)
    stored = matrix.mT if is_transposed else matrix
    buffer = torch.empty(TILE * min(LENGTH, stored.shape[1]), dtype=dtype)
    for down in slices(stored.shape[0]):
        for along in slices(stored.shape[1], LENGTH):
            part = stored[down, along]
            block = buffer[: part.numel()].view(part.shape).copy_(part)
            yield (along, down, block.mT) if is_transposed else (down, along, block)


def tile_sums(values: torch.Tensor, signs: torch.Tensor | None = None) -> torch.Tensor:
    """Return the sums over the rows of each tile, (tiles, k) of (rows, k), with signs (rows,) or without.

    Values that lie in memory by columns are multiplied by the signs where they are: a copy takes twice as long.
    """
    if values.stride(1) == 1:
        weights = torch.ones(len(values), dtype=values.dtype) if signs is None else signs
        return torch.stack([weights[part] @ values[part] for part in slices(len(values))])
    signed = values if signs is None else values.mul_(signs.unsqueeze(1))
    whole = len(values) // TILE * TILE
    parts = [signed[:whole].view(whole // TILE, TILE, -1).sum(1)] if whole else []
    return torch.cat((*parts, signed[whole:].sum(0, keepdim=True))) if whole < len(values) else parts[0]


def sums_both_ways(
    block: torch.Tensor, y: torch.Tensor | None = None, x: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sums of rows over each tile of columns, (rows, tiles), and of columns over each tile of rows.

    ``y`` are signs of the rows, ``x`` of the columns. The block's own signs are lost.
    """
    if block.stride(1) == 1:
        by_columns = tile_sums(block, y)
        return tile_sums(block.mT, x).mT, by_columns
    by_rows = tile_sums(block.mT, x).mT
    return by_rows, tile_sums(block, y)


def tiles_of(rows: slice) -> slice:
    """Return the tiles that rows of a block are."""
    return slice(rows.start // TILE, tiles(rows.stop))


def walked(
    matrix: Matrix, signs: torch.Tensor, dtype: torch.dtype, against: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the signed sums of each tile of rows (tiles, k), the norms of the rows, and their products with others.

    All are computed in a dtype, in which the sums are; norms and products are float64. ``against`` is (others, k), the
    products with it (others, rows); without it there are none.
    """
    count, k = matrix.shape
    sums, squares = torch.empty(tiles(count), k, dtype=dtype), torch.zeros(count, dtype=torch.float64)
    others = torch.empty(0, k, dtype=dtype) if against is None else against.to(dtype)
    products = torch.zeros(len(others), count, dtype=dtype)
    y = signs.to(dtype)
    for rows, part, block in blocks(matrix, dtype):
        if against is not None:
            products[:, rows].addmm_(others[:, part].contiguous(), block.mT)
        sums[tiles_of(rows), part] = tile_sums(block, y[rows])
        squares[rows] += block.square_().sum(1)
    if dtype != torch.float64 and not torch.finfo(dtype).tiny < squares.max() < torch.inf:
        # Which row is the longest cannot be told where its square leaves the dtype's range.
        return walked(matrix, signs, torch.float64, against)
    return sums, squares.sqrt_(), products.double()


def products_with(matrix: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Return the products of others, (others, k), with the rows of a matrix, (m, k), as (others, m) in float64.

    They are computed in the dtype of the others. This way round a few others against a transposed block take a tenth of
    the time that they take the other way.
    """
    found = torch.zeros(len(others), len(matrix), dtype=others.dtype)
    for rows, part, block in blocks(matrix, others.dtype):
        found[:, rows].addmm_(others[:, part].contiguous(), block.mT)
    return found.double()
