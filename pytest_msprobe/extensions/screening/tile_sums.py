"""Sums of a large matrix by tiles of neighbouring rows, in one pass of widened blocks, and screened products."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch

#: Neighbouring rows, or columns, that share one residual and have one of them computed exactly.
TILE = 128

#: Blocks are one tile by so many elements that neighbour each other in memory: shorter ones cost more calls and are
#: read slower, longer ones leave the processor's cache.
LENGTH = 32 * TILE

BothWays: TypeAlias = tuple[torch.Tensor, torch.Tensor]
"""Sums of a block's rows over each tile of columns, (rows, tiles), and of its columns over each tile of rows."""


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


def drawn_weights(count: int, generator: torch.Generator, tile: int = TILE) -> torch.Tensor:
    """Return random weights of either sign for the elements that residuals sum up by tiles, (count,) in float64.

    Were all of one magnitude, equal errors would cancel each other however great they are. Magnitudes lie between 1 and
    1.5, each of a tile's at another place, so that no two are close. In tiles of `TILE` their product with a number of
    16 bits is exact in float32.
    """
    signs = torch.randint(0, 2, (count,), generator=generator).mul_(2).sub_(1).double()
    places = torch.rand(-(-count // tile), tile, generator=generator).argsort(1)
    return signs * (1 + places.view(-1)[:count] / (2.0 * tile))


def tile_sums(values: torch.Tensor, weights: torch.Tensor | None = None) -> torch.Tensor:
    """Return the sums over the rows of each tile, (tiles, k) of (rows, k), with weights (rows,) or without.

    Where there are weights, values lie in memory by rows.
    """
    if weights is not None or values.stride(1) == 1:
        factors = torch.ones(len(values), dtype=values.dtype) if weights is None else weights
        return torch.stack([factors[part] @ values[part] for part in slices(len(values))])
    whole = len(values) // TILE * TILE
    parts = [values[:whole].view(whole // TILE, TILE, -1).sum(1)] if whole else []
    return torch.cat((*parts, values[whole:].sum(0, keepdim=True))) if whole < len(values) else parts[0]


def sums_both_ways(block: torch.Tensor, y: torch.Tensor, x: torch.Tensor) -> BothWays:
    """Return the sums of rows over each tile of columns, (rows, tiles), and of columns over each tile of rows.

    ``y`` are weights of the rows, ``x`` of the columns. The block is used up.
    """
    if block.stride(1) != 1:
        by_columns, by_rows = sums_both_ways(block.mT, x, y)
        return by_rows.mT, by_columns.mT
    by_columns = tile_sums(block, y)
    return tile_sums(block.mul_(x).mT).mT, by_columns


def sums_and_squares(block: torch.Tensor, y: torch.Tensor, x: torch.Tensor, least: float) -> tuple[BothWays, BothWays]:
    """Return what `sums_both_ways` does of a block, and the same of the squares of its magnitudes and of the weights.

    Magnitudes are taken to be ``least`` at least. The block is used up.
    """
    if block.stride(1) != 1:
        (by_columns, by_rows), (column_squares, row_squares) = sums_and_squares(block.mT, x, y, least)
        return (by_rows.mT, by_columns.mT), (row_squares.mT, column_squares.mT)
    by_columns = tile_sums(block, y)
    weighted = block.mul_(x)
    by_rows = tile_sums(weighted.mT).mT
    # The squares of c x count in rows as they are; columns have x^2 divided out of their sums.
    of_columns = x.square()
    squares = torch.maximum(weighted.square_(), of_columns * least**2, out=weighted)
    column_squares = tile_sums(squares, y.square()).div_(of_columns)
    return (by_rows, by_columns), (tile_sums(squares.mT).mT, column_squares)


def tiles_of(rows: slice) -> slice:
    """Return the tiles that rows of a block are."""
    return slice(rows.start // TILE, tiles(rows.stop))


def walked(
    matrix: Matrix,
    weights: torch.Tensor,
    dtype: torch.dtype,
    against: torch.Tensor | None = None,
    *,
    spare: int = 0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the weighted sums of each tile of rows (tiles, k), the norms of the rows, and their products with others.

    All are computed in a dtype, in which the sums are; norms and products are float64. ``against`` is (others, k), the
    products with it (others, rows); without it there are none. Behind the sums are ``spare`` rows that are left to be
    filled.
    """
    count, k = matrix.shape
    sums, squares = torch.empty(tiles(count) + spare, k, dtype=dtype), torch.zeros(count, dtype=torch.float64)
    others = torch.empty(0, k, dtype=dtype) if against is None else against.to(dtype)
    products = torch.zeros(len(others), count, dtype=dtype)
    y = weights.to(dtype)
    for rows, part, block in blocks(matrix, dtype):
        if against is not None:
            products[:, rows].addmm_(others[:, part].contiguous(), block.mT)
        if block.stride(1) == 1:
            sums[tiles_of(rows), part] = tile_sums(block, y[rows])
            squares[rows] += block.square_().sum(1)
        else:
            # Multiplied by the weights where it is: a copy takes twice as long.
            sums[tiles_of(rows), part] = tile_sums(block.mul_(y[rows].unsqueeze(1)))
            squares[rows] += block.square_().sum(1).div_(y[rows].square())
    if dtype != torch.float64 and not torch.finfo(dtype).tiny < squares.max() < torch.inf:
        # Which row is the longest cannot be known where its square leaves the dtype's range.
        return walked(matrix, weights, torch.float64, against, spare=spare)
    return sums, squares.sqrt_(), products.double()


def products_with(matrix: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Return the products of others, (others, k), with the rows of a matrix, (m, k), as (others, m) in float64.

    They are computed in the dtype of the others. This way round a few others against a transposed block take a tenth of
    the time that they take the other way.
    """
    products = torch.zeros(len(others), len(matrix), dtype=others.dtype)
    for rows, part, block in blocks(matrix, others.dtype):
        products[:, rows].addmm_(others[:, part].contiguous(), block.mT)
    return products.double()


@dataclass(frozen=True, slots=True)
class Product:
    """``result`` is to be ``alpha`` * ``left`` @ ``right`` + ``beta`` * ``added``.

    All are CPU tensors of floats: ``left`` (m, k), ``right`` (k, n), which may be one that is made block by block,
    ``result`` (m, n), in any strides, and ``added`` of a shape that broadcasts to the result's.
    """

    left: torch.Tensor
    right: Matrix
    result: torch.Tensor
    alpha: float = 1.0
    added: torch.Tensor | None = None
    beta: float = 1.0

    @property
    def operations(self) -> int:
        """Return how many multiplications and additions it takes."""
        return 2 * self.left.shape[0] * self.left.shape[1] * self.right.shape[1]

    def added_to(self, rows: slice | torch.Tensor, columns: slice | torch.Tensor) -> torch.Tensor:
        """Return in float64 what is added to some rows, or to all rows of some columns."""
        if self.added is None or not self.beta:
            return torch.zeros((), dtype=torch.float64)
        return self.beta * self.added.expand(self.result.shape)[rows][..., columns].double()

    def added_sums(self, y: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return in float64 what is added, summed up by tiles with weights of rows ``y`` (m,) and columns ``x`` (n,).

        The first is by rows and broadcasts to (m, tiles), the second by columns and broadcasts to (tiles, n).
        """
        if self.added is None or not self.beta:
            zero = torch.zeros(1, 1, dtype=torch.float64)
            return zero, zero
        if self.added.dim() == 1:
            row = self.beta * self.added.double()
            return tile_sums(row.unsqueeze(1), x).mT, tile_sums(y.unsqueeze(1)) * row
        by_rows = torch.empty(len(y), tiles(len(x)), dtype=torch.float64)
        by_columns = torch.empty(tiles(len(y)), len(x), dtype=torch.float64)
        for rows, columns, block in blocks(self.added.expand(self.result.shape), torch.float64):
            sums = sums_both_ways(block, y[rows], x[columns])
            by_rows[rows, tiles_of(columns)], by_columns[tiles_of(rows), columns] = sums
        return by_rows.mul_(self.beta), by_columns.mul_(self.beta)
