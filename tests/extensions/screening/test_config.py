"""What screening clears and what it does not, by laws."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from msprobe_standards import Policy, standard
from pytest_msprobe.extensions.screening.config import Screening, examine, is_screenable, screening
from pytest_msprobe.extensions.screening.tile_sums import TILE, Product

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
SHAPES = st.tuples(st.integers(129, 400), st.integers(129, 400), st.integers(129, 400))
SEEDS = st.integers(0, 2**32)
_BY = Policy.load("default")


def _factors(shape: tuple[int, int, int], dtype: torch.dtype, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    m, k, n = shape
    left, right = torch.randn(m, k, generator=generator), torch.randn(k, n, generator=generator)
    return left.to(dtype), right.to(dtype)


def _screened(left: torch.Tensor, right: torch.Tensor, result: torch.Tensor, seed: int = 0) -> Screening:
    by = _BY.select("mm", output_dtype=result.dtype, input_dtypes={left.dtype})
    return screening(examine([Product(left, right, result)], seed), by)


def _rounded_once(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return (left.double() @ right.double()).to(left.dtype)


@given(SHAPES, st.sampled_from(DTYPES), SEEDS)
def test_a_correct_product_is_cleared(shape: tuple[int, int, int], dtype: torch.dtype, seed: int) -> None:
    left, right = _factors(shape, dtype, seed)
    result = (left.float() @ right.float()).to(dtype)
    assert _screened(left, right, result, seed).why_not == ""


@given(SHAPES, st.sampled_from(DTYPES), SEEDS)
def test_a_correct_product_of_rows_and_columns_of_any_magnitude_is_cleared(
    shape: tuple[int, int, int], dtype: torch.dtype, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    left, right = _factors(shape, dtype, seed)
    left *= 2 ** torch.randint(-3, 4, (len(left), 1), generator=generator).to(dtype)
    right *= 2 ** torch.randint(-3, 4, (right.shape[1],), generator=generator).to(dtype)
    assert _screened(left, right, _rounded_once(left, right), seed).is_cleared


def _tile(result: torch.Tensor) -> torch.Tensor:
    result[-TILE:, :TILE] *= 1.1
    return result


def _shifted_tile(result: torch.Tensor) -> torch.Tensor:
    result[-TILE:, :TILE] += result.abs().mean()
    return result


def _row(result: torch.Tensor) -> torch.Tensor:
    result[len(result) // 2] = result[0]
    return result


def _column(result: torch.Tensor) -> torch.Tensor:
    result[:, -1] = 0
    return result


def _scaled(result: torch.Tensor) -> torch.Tensor:
    return result * (1 + 64 * torch.finfo(result.dtype).eps)


def _one_large_element(result: torch.Tensor) -> torch.Tensor:
    result[1, 2] += 16 * result.abs().max()
    return result


def _not_a_number(result: torch.Tensor) -> torch.Tensor:
    result[3, 4] = float("nan")
    return result


_FEW = settings(max_examples=25)


@pytest.mark.parametrize(
    "change", [_tile, _shifted_tile, _row, _column, _scaled, _one_large_element, _not_a_number, torch.flipud]
)
@_FEW
@given(SHAPES, st.sampled_from(DTYPES), SEEDS)
def test_a_changed_result_is_never_cleared(
    change: Callable[[torch.Tensor], torch.Tensor], shape: tuple[int, int, int], dtype: torch.dtype, seed: int
) -> None:
    left, right = _factors(shape, dtype, seed)
    assert not _screened(left, right, change(_rounded_once(left, right)), seed).is_cleared


@_FEW
@given(SHAPES, SEEDS, st.integers(1, 8), st.integers(1, 8), st.integers(0, 120), st.sampled_from((0.1, 0.5)))
def test_equal_errors_in_a_few_neighbouring_rows_and_columns_are_never_cleared(
    shape: tuple[int, int, int], seed: int, height: int, width: int, at: int, error: float
) -> None:
    left, right = _factors(shape, torch.float32, seed)
    result = _rounded_once(left, right)
    result[at : at + height, at : at + width] += error * result.abs().mean()
    assert not _screened(left, right, result, seed).is_cleared


@settings(max_examples=5)
@given(st.sampled_from((torch.float16, torch.bfloat16)), SEEDS, st.integers(0, 31), st.integers(0, 31))
def test_an_error_in_each_32nd_row_and_column_is_never_cleared_where_so_many_tiles_are(
    dtype: torch.dtype, seed: int, row: int, column: int
) -> None:
    left, right = _factors((32 * TILE, 130, 300), dtype, seed)
    result = _rounded_once(left, right)
    result[row::32, column::32] += 5 * torch.finfo(dtype).eps * result.abs().float().mean()
    assert not _screened(left, right, result, seed).is_cleared


@_FEW
@given(SHAPES, st.sampled_from(DTYPES), SEEDS, st.integers(0, 7))
def test_a_product_that_lacks_a_slice_of_its_inner_dimension_is_never_cleared(
    shape: tuple[int, int, int], dtype: torch.dtype, seed: int, eighth: int
) -> None:
    left, right = _factors(shape, dtype, seed)
    start = shape[1] * eighth // 8
    kept = [i for i in range(shape[1]) if not start <= i < start + 8]
    assert not _screened(left, right, _rounded_once(left[:, kept], right[kept]), seed).is_cleared


@_FEW
@given(st.integers(129, 400), st.sampled_from(DTYPES), SEEDS)
def test_a_transposed_product_is_never_cleared(size: int, dtype: torch.dtype, seed: int) -> None:
    left, right = _factors((size, 200, size), dtype, seed)
    assert not _screened(left, right, _rounded_once(left, right).mT, seed).is_cleared


@_FEW
@given(SHAPES, st.sampled_from((torch.float16, torch.bfloat16)), SEEDS)
def test_sums_that_are_rounded_to_16_bits_are_never_cleared(
    shape: tuple[int, int, int], dtype: torch.dtype, seed: int
) -> None:
    left, right = _factors(shape, dtype, seed)
    total = torch.zeros(shape[0], shape[2], dtype=dtype)
    for one, other in zip(left.split(16, 1), right.split(16, 0), strict=True):
        total += _rounded_once(one, other)
    assert not _screened(left, right, total, seed).is_cleared


@_FEW
@given(SHAPES, SEEDS)
def test_a_float32_product_of_operands_that_were_rounded_is_never_cleared(
    shape: tuple[int, int, int], seed: int
) -> None:
    left, right = _factors(shape, torch.float32, seed)
    assert not _screened(left, right, _rounded_once(left.half().float(), right), seed).is_cleared


def test_truncation_is_not_cleared_though_no_residual_stands_out() -> None:
    left, right = _factors((300, 300, 300), torch.bfloat16, 1)
    exact = (left.double() @ right.double()).float()
    cut_off = (exact.view(torch.int32) >> 16 << 16).view(torch.float32).bfloat16()
    found = _screened(left, right, cut_off)
    assert found.verdict is None
    assert not found.is_cleared


def test_what_is_added_and_the_factors_of_both_are_part_of_the_product() -> None:
    left, right = _factors((200, 300, 250), torch.float32, 2)
    added = torch.randn(250)
    by = _BY.select("addmm", output_dtype=torch.float32)
    for beta, is_right in ((0.5, True), (1.0, False)):
        result = (3 * (left.double() @ right.double()) + 0.5 * added).float()
        found = screening(examine([Product(left, right, result, 3.0, added, beta)], 0), by)
        assert found.is_cleared is is_right


def test_a_residual_says_where_it_stands_out() -> None:
    left, right = _factors((400, 100, 400), torch.float32, 3)
    result = _rounded_once(left, right)
    products = [Product(left, right, result), Product(left, right, result.clone())]
    products[1].result[300, 200] += 1
    found = screening(examine(products, 0), _BY.select("bmm", output_dtype=torch.float32))
    assert "matrix 1, row 300, columns from 128" in found.why_not or "rows from 256, column 200" in found.why_not


def test_a_result_of_zeros_is_left_to_the_exact_check() -> None:
    zeros = torch.zeros(200, 200)
    assert _screened(zeros, zeros, zeros).why_not == "the result is zero throughout"


def test_only_standards_that_a_sample_can_estimate_are_screened() -> None:
    assert is_screenable(_BY.select("mm", output_dtype=torch.float32))
    assert not is_screenable(standard("binary_consistency"))
    assert not is_screenable(standard("ulp"))
