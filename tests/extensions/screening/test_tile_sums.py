"""Passes over matrices in blocks, and their sums by tiles."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_msprobe.extensions.screening.config import examine
from pytest_msprobe.extensions.screening.tile_sums import (
    TILE,
    Product,
    blocks,
    drawn_weights,
    products_with,
    sums_and_squares,
    sums_both_ways,
    tiles,
    walked,
)

SIDES = st.integers(1, 3 * TILE)


def _matrix(rows: int, columns: int, *, by_columns: bool) -> torch.Tensor:
    values = torch.randn(columns, rows).mT if by_columns else torch.randn(rows, columns)
    return values.bfloat16()


def _weights(count: int) -> torch.Tensor:
    return drawn_weights(count, torch.Generator().manual_seed(count))


def _summed(matrix: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the weighted sums of tiles of rows, by a product with a matrix of weights."""
    member = torch.zeros(tiles(len(matrix)), len(matrix), dtype=torch.float64)
    for row, weight in enumerate(weights):
        member[row // TILE, row] = weight
    return member @ matrix.double()


@settings(max_examples=25)
@given(SIDES, st.integers(1, 5000), st.booleans())
def test_blocks_are_every_element_once_in_whole_tiles(rows: int, columns: int, by_columns: bool) -> None:
    matrix = _matrix(rows, columns, by_columns=by_columns)
    found = torch.full((rows, columns), float("nan"), dtype=torch.float64)
    for down, along, block in blocks(matrix, torch.float64):
        assert (down.start % TILE, along.start % TILE) == (0, 0)
        assert found[down, along].isnan().all()
        found[down, along] = block
    assert torch.equal(found, matrix.double())


@settings(max_examples=25)
@given(SIDES, SIDES, st.booleans())
def test_sums_go_over_tiles_of_rows_and_of_columns(rows: int, columns: int, by_columns: bool) -> None:
    matrix, y, x = _matrix(rows, columns, by_columns=by_columns), _weights(rows), _weights(columns)
    alone = sums_both_ways(matrix.double(), y, x)
    sums, (row_squares, column_squares) = sums_and_squares(matrix.double(), y, x, 0.5)
    for by_rows, by_columns in (alone, sums):
        torch.testing.assert_close(by_columns, _summed(matrix, y))
        torch.testing.assert_close(by_rows, _summed(matrix.mT, x).mT)
    squares = matrix.double().abs().clamp(min=0.5).square()
    torch.testing.assert_close(column_squares, _summed(squares, y.square()))
    torch.testing.assert_close(row_squares, _summed(squares.mT, x.square()).mT)


def test_weights_have_either_sign_and_no_two_of_a_tile_have_magnitudes_that_are_close() -> None:
    weights = _weights(1000)
    assert 400 < (weights > 0).sum() < 600
    for tile in weights.abs().split(TILE):
        magnitudes = tile.sort().values
        assert magnitudes[0] >= 1
        assert magnitudes[-1] < 1.5
        assert magnitudes.diff().min() >= 1 / (2 * TILE)


@settings(max_examples=25)
@given(SIDES, st.integers(1, 5000), st.booleans(), st.sampled_from([torch.float32, torch.float64]))
def test_a_walk_sums_measures_and_multiplies_rows(
    rows: int, columns: int, by_columns: bool, dtype: torch.dtype
) -> None:
    matrix, weights = _matrix(rows, columns, by_columns=by_columns), _weights(rows)
    others = torch.randn(3, columns, dtype=dtype)
    sums, norms, products = walked(matrix, weights, dtype, others)
    expected, rounding = others.double() @ matrix.double().mT, torch.finfo(dtype).eps
    assert (sums.dtype, norms.dtype, products.dtype) == (dtype, torch.float64, torch.float64)
    torch.testing.assert_close(sums, _summed(matrix, weights).to(dtype))
    torch.testing.assert_close(norms, matrix.double().norm(dim=1), rtol=1e3 * rounding, atol=0)
    for found in (products, products_with(matrix, others)):
        assert found.dtype == torch.float64
        torch.testing.assert_close(found, expected, rtol=0, atol=100 * columns**0.5 * rounding)


@pytest.mark.parametrize("exponent", [-90, 90])
def test_the_longest_row_is_known_where_its_square_leaves_the_range_of_float32(exponent: int) -> None:
    matrix = _matrix(300, 200, by_columns=False)
    matrix[217] *= 4
    _, norms, _ = walked(matrix * 2.0**exponent, _weights(300), torch.float32)
    torch.testing.assert_close(norms * 2.0**-exponent, matrix.double().norm(dim=1))
    assert norms.argmax() == 217


def test_residuals_of_16_bits_are_those_of_float64_within_the_rounding_of_sums_in_float32() -> None:
    left, right = torch.randn(300, 200).bfloat16(), torch.randn(200, 260).bfloat16()
    result = (left.double() @ right.double()).bfloat16()
    # Below a scale of 2^-40 sums are kept in float64.
    small = 2.0**-60
    found = examine([Product(left, right, result)], 0).residuals
    exact = examine([Product(left * small, right, result * small)], 0).residuals
    for kind, residual in found.items():
        assert residual.share == pytest.approx(exact[kind].share, rel=1e-3)
