"""Configuration of screening, and Freivalds' check of matrix products: evidence that is enough to pass them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import torch

from msprobe_standards import Standard, Verdict, measure
from msprobe_standards.benchmark import Benchmark
from msprobe_standards.dtypes import float_format, roundoffs_allowed
from msprobe_standards.exemption import Excused
from pytest_msprobe.devices.math_modes import full_precision
from pytest_msprobe.extensions.screening.options import ScreenedOutput
from pytest_msprobe.extensions.screening.tile_sums import (
    TILE,
    Matrix,
    Product,
    blocks,
    drawn_weights,
    products_with,
    sums_and_squares,
    tiles,
    tiles_of,
    walked,
)
from pytest_msprobe.results.result import OutputResult

#: How likely it is that a residual of a correct result stands out, all residuals of a call taken together. A choice: it
#: costs an exact check, and the limits grow with the root of its logarithm.
FALSE_STAND_OUT = 1e-6


class Limits:
    """The limits of ``count`` residuals of one call.

    A residual is taken to be sub-Gaussian. ``exponent`` is the logarithm of how many there are over `FALSE_STAND_OUT`.
    """

    def __init__(self, count: int) -> None:
        self.exponent = math.log(2 * count / FALSE_STAND_OUT)

    def of_one(self) -> float:
        """Return the limit of the square of one residual over its variance (Hoeffding)."""
        return 2 * self.exponent

    def of_mean(self, count: int) -> float:
        """Return the limit of the mean of so many such squares (Hsu, Kakade and Zhang, 2012)."""
        return 1 + 2 * math.sqrt(self.exponent / count) + 2 * self.exponent / count


_FLOAT32 = float_format(torch.float32).unit_roundoff

# The golden section of a tile of 128, odd: places of neighbouring tiles lie far apart.
_STEP = 79


@dataclass(frozen=True, slots=True)
class Residual:
    """The greatest residual of one kind: as a share of its limit, and the product, rows and columns that it is of."""

    share: float
    where: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence of the products of one output.

    ``target`` and ``golden`` (float64, of sums in golden's dtype) are the elements that were computed exactly, (count,)
    each, out of ``numel``; ``scale`` is the mean magnitude of all elements of the results. ``residuals`` are the worst,
    by kind.
    """

    target: torch.Tensor
    golden: torch.Tensor
    scale: float
    numel: int
    residuals: dict[str, Residual]

    @property
    def is_finite(self) -> bool:
        """Return whether no NaN or inf was met, in factors or results."""
        return math.isfinite(sum(residual.share for residual in self.residuals.values()) + self.scale)


@full_precision()
def examine(products: Sequence[Product], seed: int) -> Evidence:
    """Take the evidence on products of one dtype, the matrices of a batch or what else makes one output.

    The result's dtype is float32 or a narrower one that sums are kept in float32 for. Memory: 2 / `TILE` of the
    operands in float64 (float32 for 16 bits), and one block.
    """
    generator = torch.Generator().manual_seed(seed)
    surveys = [_survey(product.result) for product in products]
    numel = sum(product.result.numel() for product in products)
    scale = sum(total for total, _ in surveys) / numel
    limits = _Limits(products, scale)
    surveyed = [_seen(product, peak, limits, generator) for product, (_, peak) in zip(products, surveys, strict=True)]
    residuals: dict[str, Residual] = {}
    for at, (_, _, worst) in enumerate(surveyed):
        for kind, residual in worst:
            # A NaN is the worst.
            if kind not in residuals or residual.share > residuals[kind].share or math.isnan(residual.share):
                where = residual.where if len(products) == 1 else f"matrix {at}, {residual.where}"
                residuals[kind] = Residual(residual.share, where)
    target, golden = _joined([sample[0] for sample in surveyed]), _joined([sample[1] for sample in surveyed])
    return Evidence(target, golden, scale, numel, residuals)


class _Limits(Limits):
    """Bounds of the residuals of correct products.

    An element's error is taken to be sub-Gaussian with a standard deviation of at most F u max(|c|, scale), F and u of
    the result's dtype. ``dtype`` is that in which factors are multiplied and results are summed up over a tile, that of
    golden: float32 for 16 bits. The roundings of a tile's sum there add to the variance; those of products are no more
    than a device's own, which F has room for.
    """

    def __init__(self, products: Sequence[Product], scale: float) -> None:
        result = products[0].result
        form = float_format(result.dtype)
        super().__init__(sum(_residual_count(*product.result.shape) for product in products))
        self.least = max(scale, form.min_normal)
        self.variance = (roundoffs_allowed(result.dtype) * form.unit_roundoff) ** 2
        # No element is more than their number times the scale, so that no square of these leaves float32's range.
        is_narrow = form.unit_roundoff > _FLOAT32 and 2.0**-40 < self.least < 2.0**20
        self.dtype = torch.float32 if is_narrow else torch.float64
        if is_narrow:
            self.variance += (TILE * _FLOAT32) ** 2


def _residual_count(m: int, n: int) -> int:
    return tiles(n) * m + tiles(m) * n + m + n + 2 * tiles(m) * tiles(n) + 2


def _survey(result: torch.Tensor) -> tuple[float, tuple[int, int]]:
    """Return the sum of all magnitudes, and row and column of the greatest."""
    total, greatest, peak = 0.0, -1.0, (0, 0)
    for rows, columns, block in blocks(result, torch.float32):
        magnitudes = block.abs_()
        total += float(magnitudes.sum())
        value = float(magnitudes.amax())
        # To find a place takes ten times as long as to find that there is none.
        if value > greatest:
            row, column = divmod(int(magnitudes.argmax()), magnitudes.shape[1])
            greatest, peak = value, (rows.start + row, columns.start + column)
    return total, peak


def _seen(
    product: Product, peak: tuple[int, int], limits: _Limits, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor, list[tuple[str, Residual]]]:
    """Return elements of the target, their exact values, and the worst residuals of each kind."""
    m, n = product.result.shape
    y, x = drawn_weights(m, generator), drawn_weights(n, generator)
    rows, columns = _one_of_each_tile(m, generator), _one_of_each_tile(n, generator)
    sums, norms, _ = walked(product.left, y, limits.dtype, spare=len(rows) + 2)
    rows = _with(rows, peak[0], int(norms.argmax()))
    from_left = _with_rows(sums, product.left, rows)
    sums, norms, crossed = walked(product.right.mT, x, limits.dtype, from_left, spare=len(columns) + 2)
    columns = _with(columns, peak[1], int(norms.argmax()))
    from_right = _with_rows(sums, product.right.mT, columns)
    by_rows = products_with(product.left, from_right).mul_(product.alpha).mT
    by_columns = crossed.mul_(product.alpha)
    del crossed, sums, from_left, from_right
    # Before the exact elements, which take as much memory as what is summed up here.
    worst = list(_worst(product, limits, (y, by_columns[: tiles(m)]), (x, by_rows[:, : tiles(n)])))
    every = slice(None)
    exact_rows = by_columns[tiles(m) :] + product.added_to(rows, every)
    exact_columns = by_rows[:, tiles(n) :] + product.added_to(every, columns)
    target = torch.cat((product.result[rows].reshape(-1), product.result[:, columns].reshape(-1)))
    return target, torch.cat((exact_rows.reshape(-1), exact_columns.reshape(-1))), worst


def _worst(
    product: Product,
    limits: _Limits,
    columns: tuple[torch.Tensor, torch.Tensor],
    rows: tuple[torch.Tensor, torch.Tensor],
) -> Iterator[tuple[str, Residual]]:
    """Yield the worst residuals, by kind.

    ``columns`` are the weights of rows (m,) and what the columns of each tile of rows sum up to with them (tiles, n),
    ``rows`` the weights of columns (n,) and what rows sum up to in each tile of columns (m, tiles).
    """
    (y, summed_columns), (x, summed_rows) = columns, rows
    added_rows, added_columns = product.added_sums(y, x)
    of_rows, of_columns = -(summed_rows + added_rows), -(summed_columns + added_columns)
    y, x = y.to(limits.dtype), x.to(limits.dtype)
    for down, along, block in blocks(product.result, limits.dtype):
        by_row, by_column = of_rows[down, tiles_of(along)], of_columns[tiles_of(down), along]
        of_block = sums_and_squares(block, y[down], x[along], limits.least)
        (row_sums, column_sums), (row_squares, column_squares) = of_block
        by_row.add_(row_sums).square_().div_(row_squares)
        by_column.add_(column_sums).square_().div_(column_squares)
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
    """Return the worst of some squares over their limit, each of so many rows and columns; 0 means all."""
    at = int(squares.argmax())
    places = divmod(at, squares.shape[1])
    words = [
        f"{name} {place * step}" if step == 1 else f"{name}s from {place * step}"
        for name, place, step in zip(("row", "column"), places, size, strict=True)
        if step
    ]
    return Residual(float(squares.reshape(-1)[at]) / limit, ", ".join(words))


def _one_of_each_tile(count: int, generator: torch.Generator) -> torch.Tensor:
    """Return indices, one of each tile, that no two of `TILE` neighbouring tiles have at the same place.

    With an odd step neighbours differ in what remains by any power of two, so that what recurs by those is met soon.
    """
    starts, first = torch.arange(0, count, TILE), torch.randint(0, TILE, (), generator=generator)
    places = (first + _STEP * torch.arange(len(starts))) % TILE
    return starts + places % (count - starts).clamp_(max=TILE)


def _with_rows(sums: torch.Tensor, matrix: Matrix, rows: torch.Tensor) -> torch.Tensor:
    """Return the sums of a matrix's tiles with some of its rows in the place that is left behind them."""
    first = tiles(matrix.shape[0])
    sums[first : first + len(rows)] = matrix[rows]
    return sums[: first + len(rows)]


def _joined(parts: list[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _with(indices: torch.Tensor, *others: int) -> torch.Tensor:
    """Return indices in order, each once."""
    return torch.tensor(sorted({*indices.tolist(), *others}))


#: Dtypes whose rounding is coarse enough to be distinguished from that of float64, in which residuals are computed.
SCREENED_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class Screening:
    """Decision on whether an output is cleared, and what shows it.

    ``verdict`` is that of the standard on the elements that were computed exactly, a pass where the output is cleared;
    ``why_not`` says what keeps it from that, empty where nothing does.
    """

    evidence: Evidence
    verdict: Verdict | None
    why_not: str

    @property
    def is_cleared(self) -> bool:
        """Return whether the whole output passes."""
        return not self.why_not


@dataclass(frozen=True, slots=True)
class ScreenedPass:
    """The verdict on an output, and what screening showed of a cleared one; None of one computed exactly.

    ``sample`` are elements, the greatest one among them.
    """

    result: OutputResult
    sample: torch.Tensor
    screened: ScreenedOutput | None = None


def is_result(value: Any, shape: tuple[int, ...], dtype: torch.dtype) -> TypeGuard[torch.Tensor]:
    """Return whether something is a dense tensor of this shape and dtype."""
    is_dense = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return is_dense and tuple(value.shape) == shape and value.dtype == dtype


def benchmark_of(standard: Standard) -> Benchmark | None:
    """Return what a standard judges by if a sample of the elements estimates its numbers; None for any other."""
    inner = standard
    while isinstance(inner, Excused):
        inner = inner.inner
    return inner if isinstance(inner, Benchmark) else None


def is_screenable(standard: Standard) -> bool:
    """Return whether a standard judges by numbers that a sample of the elements estimates."""
    return benchmark_of(standard) is not None


def screening(evidence: Evidence, standard: Standard) -> Screening:
    """Hold evidence against the limits of its residuals, and its exact elements against the standard.

    Elements are measured against the scale of the whole output, and held to the limits of its number of elements. What
    would need a baseline is not cleared.
    """
    if not evidence.is_finite:
        return Screening(evidence, None, "there are NaN or inf elements")
    if not evidence.scale:
        return Screening(evidence, None, "the result is zero throughout")
    kind, worst = max(evidence.residuals.items(), key=lambda item: item[1].share)
    if worst.share > 1:
        why = f"the residual of a {kind} is {worst.share**0.5:.3g} times its limit ({worst.where})"
        return Screening(evidence, None, why)
    dtype = evidence.target.dtype
    metrics = measure(
        evidence.target, evidence.golden, only=standard.wanted, bounds=standard.bounds(dtype), scale=evidence.scale
    )
    verdict = standard.settled(replace(metrics, numel=evidence.numel))
    if verdict is None or verdict.outcome != "pass":
        return Screening(evidence, verdict, "the elements that were computed exactly do not pass without a baseline")
    return Screening(evidence, verdict, "")
