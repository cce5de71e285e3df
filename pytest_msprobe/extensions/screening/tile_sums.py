"""Sums of a large matrix by tiles of neighbouring rows, and matrices of patches, one for each window."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import torch

from pytest_msprobe.engine.replay.ops.convolution_geometry import Windows, each_of

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
    found = torch.zeros(len(others), len(matrix), dtype=others.dtype)
    for rows, part, block in blocks(matrix, others.dtype):
        found[:, rows].addmm_(others[:, part].contiguous(), block.mT)
    return found.double()


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


@dataclass(frozen=True, slots=True)
class Patches:
    """The patches of all windows as rows, (windows, taps * channels), or as columns where it is transposed.

    ``pixels`` are (elements, channels); a window's tap is the pixel at the sum of its ``starts`` (windows,) and its
    ``offsets`` (taps,), int64 both.
    """

    pixels: torch.Tensor
    starts: torch.Tensor
    offsets: torch.Tensor
    is_transposed: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = len(self.starts), len(self.offsets) * self.pixels.shape[1]
        return (columns, rows) if self.is_transposed else (rows, columns)

    @property
    def mT(self) -> Patches:  # noqa: N802 - torch's name
        """The transposed matrix."""
        return replace(self, is_transposed=not self.is_transposed)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: torch.Tensor) -> torch.Tensor:
        """Return some rows as a matrix."""
        if not self.is_transposed:
            return self._read(self.starts[rows], self.offsets)
        channels = self.pixels.shape[1]
        taps = self.offsets[rows.div(channels, rounding_mode="floor")]
        return self.pixels[self.starts + taps.unsqueeze(1), (rows % channels).unsqueeze(1)]

    def blocks(self, dtype: torch.dtype) -> Iterator[tuple[slice, slice, torch.Tensor]]:
        """Yield rows, columns and values of all blocks, each of which is overwritten by the next, as of a tensor."""
        channels = self.pixels.shape[1]
        # So many taps are whole tiles of columns.
        least = TILE // math.gcd(TILE, channels)
        taps = max(1, LENGTH // (least * channels)) * least
        buffer = torch.empty(TILE * min(taps, len(self.offsets)) * channels, dtype=dtype)
        for down in slices(len(self.starts)):
            for some in slices(len(self.offsets), taps):
                part = self._read(self.starts[down], self.offsets[some])
                along = slice(some.start * channels, some.stop * channels)
                block = buffer[: part.numel()].view(part.shape).copy_(part)
                yield (along, down, block.mT) if self.is_transposed else (down, along, block)

    def _read(self, starts: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        at = starts.unsqueeze(1) + offsets
        return self.pixels.index_select(0, at.view(-1)).view(len(starts), -1)


def patches_of(values: torch.Tensor, groups: int, ways: Sequence[tuple[Windows, ...]]) -> list[list[Patches]]:
    """Return the patches of values (N, C, ...) in each of several ways to lay windows, for each group of channels.

    Windows are in order of N and of the dimensions, elements of a patch of its taps and then of the channels. All share
    one copy of the values, padded with the zeros that windows read.
    """
    sides = values.shape[2:]
    reached = [[way[axis] for way in ways if len(way[axis].offsets)] for axis in range(len(sides))]
    low = [max(0, *(-min(each.offsets) - each.starts[0] for each in along), 0) for along in reached]
    high = [
        max(0, *(each.starts[-1] + max(each.offsets) - side + 1 for each in along), 0)
        for along, side in zip(reached, sides, strict=True)
    ]
    sizes = [sum(each) for each in zip(low, sides, high, strict=True)]
    by_group = in_groups(values, 1, groups).movedim(1, 0).movedim(2, -1)
    padded = torch.zeros(groups, len(values), *sizes, by_group.shape[-1], dtype=values.dtype)
    inside = tuple(slice(start, start + side) for start, side in zip(low, sides, strict=True))
    index = (slice(None), slice(None), *inside)
    padded[index] = by_group
    pixels = padded.flatten(1, -2)
    found = []
    for way in ways:
        starts, offsets = torch.arange(len(values)), torch.zeros(1, dtype=torch.int64)
        for windows, size, before in zip(way, sizes, low, strict=True):
            starts = (starts.unsqueeze(1) * size + _indices(windows.starts) + before).view(-1)
            offsets = (offsets.unsqueeze(1) * size + _indices(windows.offsets)).view(-1)
        found.append([Patches(each, starts, offsets) for each in pixels])
    return found


def in_groups(values: torch.Tensor, dimension: int, groups: int) -> torch.Tensor:
    """Return a view with a dimension taken apart into (groups, size of a group)."""
    sizes = list(values.shape)
    sizes[dimension : dimension + 1] = [groups, sizes[dimension] // groups]
    return values.view(sizes)


def _indices(numbers: range) -> torch.Tensor:
    return torch.arange(numbers.start, numbers.stop, numbers.step)


def patches(values: torch.Size, weight: torch.Size, options: Mapping[str, Any]) -> Contraction | None:
    """Return what product a convolution of (N, C, ...) with a weight (O, C, ...) is.

    Its windows are as large as its steps and fill the input, as those of a pointwise convolution or of an embedding of
    patches: then it multiplies (N * windows, C * kernel) by (C * kernel, O). None for any other: where windows overlap,
    are padded, dilated or grouped, or leave elements at the end out.
    """
    if len(values) != len(weight) or values[1] != weight[1]:
        return None
    sides, kernel = values[2:], tuple(weight[2:])
    count = len(kernel)
    plain = (
        each_of(options.get("stride", 1), count) == kernel
        and options.get("padding", 0) in (0, "valid", (0,) * count, [0] * count)
        and each_of(options.get("dilation", 1), count) == (1,) * count
        and options.get("groups", 1) == 1
    )
    if not plain or any(side % size for side, size in zip(sides, kernel, strict=True)):
        return None
    windows = tuple(side // size for side, size in zip(sides, kernel, strict=True))
    rows, inner, columns = values[0] * math.prod(windows), weight[1] * math.prod(kernel), weight[0]
    spatial = tuple(range(2, 2 + count))
    apart = tuple(part for pair in zip(windows, kernel, strict=True) for part in pair)
    of_windows, of_kernel = tuple(range(2, 2 + 2 * count, 2)), tuple(range(3, 3 + 2 * count, 2))
    return Contraction(
        Layout((0, *of_windows, 1, *of_kernel), rows, inner, (values[0], values[1], *apart)),
        Layout((1, *spatial, 0), inner, columns),
        Layout((0, *spatial, 1), rows, columns),
        (values[0], columns, *windows),
    )
