"""Freivalds' check of matrix products from both sides, with exact elements from all over the result.

For signs x (-1 and 1, drawn from a seed) the error E of a product C = A B shows in C x - A (B x) = E x at the cost of
three products of a matrix with a vector. Signs are drawn for each tile of neighbouring columns and, from the other
side, of neighbouring rows, so that what stands out has a place. R. Freivalds, Probabilistic machines can use less
running time, 1977. docs/standards.md, "Screening of products", derives the limits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from msprobe_standards.dtypes import float_format, roundoffs_allowed
from pytest_msprobe.engine.replay.screening.product import Product

#: Neighbouring rows, or columns, that share one residual and have one of them computed exactly.
TILE = 128

# Blocks of one tile by so many stay in the processor's cache: rows of the result, elements along rows of a factor.
_ROWS, _LENGTH = 8 * TILE, 16 * TILE

#: How likely it is that a residual of a correct product stands out, all residuals of a call taken together.
FALSE_STAND_OUT = 1e-6


@dataclass(frozen=True, slots=True)
class Residual:
    """The greatest residual of one kind: as a share of its limit, and the product, rows and columns that it is of."""

    share: float
    where: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was seen of the products of one output.

    ``target`` and ``golden`` (float64) are the elements that were computed exactly, (count,) each, out of ``numel``;
    ``scale`` is the mean magnitude of all elements of the results. ``residuals`` are the worst, by kind.
    """

    target: torch.Tensor
    golden: torch.Tensor
    scale: float
    numel: int
    residuals: dict[str, Residual]

    @property
    def is_finite(self) -> bool:
        """Whether no NaN or inf was met, in factors or results."""
        return math.isfinite(sum(each.share for each in self.residuals.values()) + self.scale)


def examine(products: Sequence[Product], seed: int) -> Evidence:
    """Take the evidence on products of one shape and dtype, the matrices of a batch.

    The result's dtype is float32 or a narrower one that sums are kept in float32 for. Memory: 2 / `TILE` of the
    operands in float64, and one tile of each.
    """
    generator = torch.Generator().manual_seed(seed)
    surveys = [_survey(product.result) for product in products]
    numel = sum(product.result.numel() for product in products)
    scale = sum(total for total, _ in surveys) / numel
    limits = _Limits(products, scale)
    seen = [_seen(product, peak, limits, generator) for product, (_, peak) in zip(products, surveys, strict=True)]
    residuals: dict[str, Residual] = {}
    for at, (_, _, found) in enumerate(seen):
        for kind, residual in found:
            # A NaN is the worst.
            if kind not in residuals or not residual.share <= residuals[kind].share:
                where = residual.where if len(products) == 1 else f"matrix {at}, {residual.where}"
                residuals[kind] = Residual(residual.share, where)
    target, golden = torch.cat([each[0] for each in seen]), torch.cat([each[1] for each in seen])
    return Evidence(target, golden, scale, numel, residuals)


class _Limits:
    """How great residuals of correct products get, where rounding errors go up and down independently.

    An element's error is taken to be sub-Gaussian with a standard deviation of at most F u max(|c|, scale), F and u of
    the result's dtype. ``exponent`` is the logarithm of how many residuals there are over `FALSE_STAND_OUT`.
    """

    def __init__(self, products: Sequence[Product], scale: float) -> None:
        result = products[0].result
        (m, n), form = result.shape, float_format(result.dtype)
        tiles = _tiles(m) * _tiles(n)
        count = _tiles(n) * m + _tiles(m) * n + m + n + 2 * tiles + 2
        self.exponent = math.log(2 * count * len(products) / FALSE_STAND_OUT)
        self.least = max(scale, form.min_normal)
        self.variance = (roundoffs_allowed(result.dtype) * form.unit_roundoff) ** 2

    def of_one(self) -> float:
        """Return the limit of the square of one residual over its variance (Hoeffding)."""
        return 2 * self.exponent

    def of_mean(self, count: int) -> float:
        """Return the limit of the mean of so many such squares (Hsu, Kakade and Zhang, 2012)."""
        return 1 + 2 * math.sqrt(self.exponent / count) + 2 * self.exponent / count


def _survey(result: torch.Tensor) -> tuple[float, tuple[int, int]]:
    """Return the sum of all magnitudes, and row and column of the greatest."""
    total, greatest, peak = 0.0, -1.0, (0, 0)
    for rows in _slices(result.shape[0]):
        magnitudes = result[rows].float().abs()
        total += float(magnitudes.sum(dtype=torch.float64))
        value = float(magnitudes.max())
        # To find a place takes ten times as long as to find that there is none.
        if value > greatest:
            at = int(magnitudes.argmax())
            greatest, peak = value, (rows.start + at // result.shape[1], at % result.shape[1])
    return total, peak


def _seen(
    product: Product, peak: tuple[int, int], limits: _Limits, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor, list[tuple[str, Residual]]]:
    """Return elements of the target, their exact values, and the worst residuals of each kind."""
    m, n = product.result.shape
    y, x = _signs(m, generator), _signs(n, generator)
    rows, columns = _one_of_each_tile(m, generator), _one_of_each_tile(n, generator)
    sums, norms, _ = _walked(product.left, y)
    rows = _with(rows, peak[0], int(norms.argmax()))
    from_left = torch.cat((sums, product.left[rows].double()))
    sums, norms, crossed = _walked(product.right.mT, x, from_left)
    columns = _with(columns, peak[1], int(norms.argmax()))
    from_right = torch.cat((sums, product.right.mT[columns].double()))
    by_rows = _products(product.left, from_right).mul_(product.alpha).mT
    by_columns = crossed.mul_(product.alpha)
    found = _worst(product, limits, (y, by_columns[: _tiles(m)]), (x, by_rows[:, : _tiles(n)]))
    every = slice(None)
    exact_rows = by_columns[_tiles(m) :] + product.added_to(rows, every)
    exact_columns = by_rows[:, _tiles(n) :] + product.added_to(every, columns)
    target = torch.cat((product.result[rows].reshape(-1), product.result[:, columns].reshape(-1)))
    return target, torch.cat((exact_rows.reshape(-1), exact_columns.reshape(-1))), list(found)


def _walked(
    matrix: torch.Tensor, signs: torch.Tensor, against: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the signed sums of each tile of rows (tiles, k), the norms of the rows, and their products with others.

    ``against`` is (others, k), the products with it (others, rows); without it there are none.
    """
    count, k = matrix.shape
    sums, norms = torch.empty(_tiles(count), k, dtype=torch.float64), torch.zeros(count, dtype=torch.float64)
    products = torch.zeros(0 if against is None else len(against), count, dtype=torch.float64)
    for tile, rows in enumerate(_slices(count)):
        for part in _slices(k, _LENGTH):
            block = _widened(matrix[rows, part])
            sums[tile, part] = signs[rows] @ block
            norms[rows] += torch.linalg.vector_norm(block, dim=1).square_()
            if against is not None:
                products[:, rows].addmm_(against[:, part], block.mT)
    return sums, norms.sqrt_(), products


def _products(matrix: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Return the products of others, (others, k), with the rows of a matrix, (m, k), as (others, m).

    This way round a few others against a transposed block take a tenth of the time that they take the other way.
    """
    found = torch.zeros(len(others), len(matrix), dtype=torch.float64)
    for rows in _slices(len(matrix)):
        for part in _slices(matrix.shape[1], _LENGTH):
            found[:, rows].addmm_(others[:, part], _widened(matrix[rows, part]).mT)
    return found


def _worst(
    product: Product,
    limits: _Limits,
    columns: tuple[torch.Tensor, torch.Tensor],
    rows: tuple[torch.Tensor, torch.Tensor],
) -> Iterator[tuple[str, Residual]]:
    """Yield the worst residuals, by kind.

    ``columns`` are the signs of rows (m,) and what the columns of each tile of rows sum up to with them (tiles, n),
    ``rows`` the signs of columns (n,) and what rows sum up to in each tile of columns (m, tiles).
    """
    (y, summed_columns), (x, summed_rows) = columns, rows
    of_rows, of_columns = torch.empty_like(summed_rows), torch.empty_like(summed_columns)
    m, n = product.result.shape
    for column, right in enumerate(_slices(n)):
        for first in range(0, m, _ROWS):
            down = slice(first, min(first + _ROWS, m))
            block = _widened(product.result[down, right])
            weights = block.abs().clamp_(min=limits.least).square_()
            block -= product.added_to(down, right)
            of_rows[down, column] = (block @ x[right] - summed_rows[down, column]).square_() / weights.sum(1)
            tiles = slice(first // TILE, _tiles(down.stop))
            found = _tile_sums(block, y[down]) - summed_columns[tiles, right]
            of_columns[tiles, right] = found.square_() / _tile_sums(weights, torch.ones_like(y[down]))
    of_rows /= limits.variance
    of_columns /= limits.variance
    yield "row in a tile", _greatest(of_rows, limits.of_one(), (1, TILE))
    yield "column in a tile", _greatest(of_columns, limits.of_one(), (TILE, 1))
    yield "row", _greatest(of_rows.mean(1, keepdim=True), limits.of_mean(of_rows.shape[1]), (1, 0))
    yield "column", _greatest(of_columns.mean(0, keepdim=True), limits.of_mean(of_columns.shape[0]), (0, 1))
    for kind, squares in (("tile by its rows", of_rows.mT), ("tile by its columns", of_columns)):
        size = min(TILE, squares.shape[1])
        means = squares[:, : squares.shape[1] // size * size].reshape(len(squares), -1, size).mean(2)
        yield kind, _greatest(means.mT if kind == "tile by its rows" else means, limits.of_mean(size), (TILE, TILE))
    for kind, squares in (("all rows", of_rows), ("all columns", of_columns)):
        yield kind, Residual(float(squares.mean()) / limits.of_mean(squares.numel()), "the whole")


def _greatest(squares: torch.Tensor, limit: float, size: tuple[int, int]) -> Residual:
    """Return the worst of some squares over their limit, each of so many rows and columns; 0 stands for all."""
    at = int(squares.argmax())
    places = divmod(at, squares.shape[1])
    words = [
        f"{name} {place * step}" if step == 1 else f"{name}s from {place * step}"
        for name, place, step in zip(("row", "column"), places, size, strict=True)
        if step
    ]
    return Residual(float(squares.reshape(-1)[at]) / limit, ", ".join(words))


def _tile_sums(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the weighted sums over the rows of each tile, (tiles, n) of (m, n)."""
    return torch.stack([weights[part] @ values[part] for part in _slices(values.shape[0])])


def _widened(block: torch.Tensor) -> torch.Tensor:
    """Return float64 copies of rows that lie in memory as before: a transposing copy takes five times as long."""
    return block.double() if block.stride(-1) == 1 else block.mT.double().mT


def _signs(count: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(0, 2, (count,), generator=generator).mul_(2).sub_(1).double()


def _one_of_each_tile(count: int, generator: torch.Generator) -> torch.Tensor:
    starts = torch.arange(0, count, TILE)
    lengths = (count - starts).clamp_(max=TILE)
    return starts + (torch.rand(starts.shape, generator=generator) * lengths).long()


def _with(indices: torch.Tensor, *others: int) -> torch.Tensor:
    """Return indices in order, each once."""
    return torch.tensor(sorted({*indices.tolist(), *others}))


def _tiles(count: int) -> int:
    return -(-count // TILE)


def _slices(count: int, size: int = TILE) -> list[slice]:
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]
