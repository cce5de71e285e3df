"""Where in a tensor the error sits: folding, blocks, and what an element may err."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from msprobe_standards import measure
from pytest_msprobe.engine.values.error_locations import MOST_BLOCKS, error_map, fold
from pytest_msprobe.engine.values.tolerance import Allowance, errors
from pytest_msprobe.reports.github import map_lines
from pytest_msprobe.results.error_map import LEVELS, LIMIT_RANK, NO_ELEMENT, NOT_FINITE, ErrorMap, level_of

_WRONG = LEVELS[LIMIT_RANK + 1 :] + NOT_FINITE


def _golden(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def _map_of(target: torch.Tensor, golden: torch.Tensor, **options: torch.Tensor) -> ErrorMap:
    found = error_map(target, golden, Allowance(ulps=2), **options)
    assert found is not None
    return found


def _wrong_blocks(found: ErrorMap) -> set[tuple[int, int]]:
    return {(y, x) for y, line in enumerate(found.lines) for x, level in enumerate(line) if level in _WRONG}


@given(st.lists(st.integers(1, 9) | st.sampled_from([64, 65, 300]), max_size=4))
@settings(max_examples=60, deadline=None)
def test_every_element_is_in_one_piece_of_the_matrix(shape: list[int]) -> None:
    folded = fold(shape)

    assert folded.numel == math.prod(shape) <= folded.rows * folded.columns
    assert max(folded.grid) <= MOST_BLOCKS
    seen = sum((p.rows[1] - p.rows[0]) * (p.columns[1] - p.columns[0]) for p in folded.pieces())
    assert seen == folded.rows * folded.columns


def test_trailing_dimensions_are_across_as_long_as_each_element_has_a_block_of_its_own() -> None:
    assert (fold((8, 64, 4, 4)).rows, fold((8, 64, 4, 4)).columns) == (512, 16)
    assert (fold((2, 3, 1000)).rows, fold((2, 3, 1000)).columns) == (6, 1000)
    assert fold((100_000,)).columns == 512
    with pytest.raises(ValueError, match="no elements"):
        fold((3, 0))


def test_a_dropped_last_column_a_tile_one_element_and_noise_look_different() -> None:
    golden = _golden(128, 128)
    column, tile, one = (golden.float() for _ in range(3))
    column[:, -1] = 0
    tile[64:96, 32:64] *= 1.01
    one[17, 3] = math.nan
    noise = golden.bfloat16().float()

    maps = [_map_of(target, golden) for target in (column, tile, one, noise)]

    assert _wrong_blocks(maps[0]) == {(y, 63) for y in range(64)}
    assert _wrong_blocks(maps[1]) == {(y, x) for y in range(32, 48) for x in range(16, 32)}
    assert _wrong_blocks(maps[2]) == {(8, 1)}
    assert maps[2].lines[8][1] == NOT_FINITE
    assert len(_wrong_blocks(maps[3])) == 64 * 64
    assert [found.place for found in maps] == ["[:, 127]", "[64:96, 32:64]", "[17, 3]", ""]


def test_the_terminal_draws_the_same_in_plain_characters() -> None:
    golden = _golden(32, 70)
    target = golden.float()
    target[:, -1] = 0

    lines = map_lines(_map_of(target, golden))

    assert lines[0] == "(32, 70) as 32 x 70, a character is 2 x 2 elements"
    assert len(lines) == 16 + 3
    assert {line[-2] for line in lines[1:17]} <= set("789")
    assert {char for line in lines[1:17] for char in line[1:-2]} <= set("-.")
    assert lines[-1] == "32 of 2240 elements beyond 2 ULP, all in [:, 69]"


def test_a_map_that_looks_alike_everywhere_is_one_line() -> None:
    golden = _golden(32, 70)

    assert map_lines(_map_of(golden.float() + 1e30, golden)) == ["all elements are wrong: beyond 2 ULP"]
    assert map_lines(_map_of(golden.float(), golden)) == ["0 of 2240 elements beyond 2 ULP"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.complex64])
def test_errors_in_ulps_are_those_of_the_standards(dtype: torch.dtype) -> None:
    golden = _golden(400) * 10.0 ** _golden(400) * 1e-3
    golden = torch.complex(golden, golden.flip(0)) if dtype.is_complex else golden
    target = (golden * (1 + 1e-3 * _golden(400))).to(dtype)

    found = errors(target, golden, dtype, Allowance(ulps=1))

    # Of a complex number the standards measure each part, here it is the distance in the plane.
    expected = measure(target, golden, dtype=dtype)["max_ulp_error"]
    assert expected <= found.in_ulps.max() <= expected * (math.sqrt(2) if dtype.is_complex else 1)


def test_integers_that_no_float_distinguishes_differ_by_one() -> None:
    golden = torch.tensor([2**60, 5, 7])
    found = errors(torch.tensor([2**60 + 1, 5, 9]), golden, torch.int64, Allowance(ulps=0.5))

    assert found.in_ulps.tolist() == [1, 0, 2]
    assert found.shares.tolist() == [2, 0, 4]


def test_infinities_are_right_where_golden_overflows_the_dtype() -> None:
    golden = torch.tensor([1e6, math.nan, 1.0, math.inf], dtype=torch.float64)
    target = torch.tensor([math.inf, math.nan, math.nan, -math.inf], dtype=torch.float16)

    assert errors(target, golden, torch.float16, Allowance(ulps=1)).shares.tolist() == [0, 0, math.inf, math.inf]


def test_the_greatest_of_the_allowances_counts() -> None:
    golden = torch.tensor([1.0, 1e-6], dtype=torch.float64)
    target = golden + 1e-3

    shares = errors(
        target, golden, torch.float64, Allowance(absolute=1e-4, relative=1e-2, scaled=1e-2, scale=0.5)
    ).shares

    assert shares.tolist() == pytest.approx([0.1, 0.2])


def test_the_worst_elements_come_first_and_bring_their_baseline() -> None:
    golden = torch.ones(4, 4, dtype=torch.float64)
    target = golden.float()
    target[1, 2], target[3, 0] = 2, math.nan

    found = _map_of(target, golden, baseline=golden.float())

    assert [(one.index, one.target, one.golden, one.baseline) for one in found.worst] == [
        ((3, 0), "nan", "1", "1"),
        ((1, 2), "2", "1", "1"),
    ]
    assert found.histogram[0] == 14
    assert found.histogram[-2:] == (1, 1)
    assert found.baseline_histogram[0] == 16


def test_the_end_of_a_tensor_cut_into_lines_has_blocks_without_elements() -> None:
    golden = _golden(100)
    found = _map_of(golden.float(), golden)

    assert (found.split, found.columns, found.rows) == (None, 16, 7)
    assert found.lines[-1].count(NO_ELEMENT) == 7 * 16 - 100


def test_a_long_row_is_looked_at_in_parts_that_leave_the_map_as_it_is() -> None:
    golden = torch.ones(2, 2**19 + 5, dtype=torch.float64)
    target = golden.float()
    target[1, -1] = 0

    found = _map_of(target, golden)

    assert _wrong_blocks(found) == {(1, len(found.lines[1]) - 1)}
    assert found.place == f"[1, {2**19 + 4}]"
    assert sum(found.histogram) == golden.numel()


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_single_element_has_a_map(shape: tuple[int, ...]) -> None:
    found = _map_of(torch.full(shape, 2.0), torch.full(shape, 1.0, dtype=torch.float64))

    assert len(found.lines) == len(found.lines[0]) == found.wrong == 1


def test_what_cannot_be_compared_element_by_element_has_none() -> None:
    golden = torch.ones(3)
    for target in (torch.ones(4), torch.ones(3, dtype=torch.int32), torch.ones(3).to_sparse()):
        assert error_map(target, golden, Allowance(ulps=1)) is None
    assert error_map(torch.ones(0), torch.ones(0), Allowance(ulps=1)) is None


@given(st.floats(1e-12, 1e12))
@settings(deadline=None)
def test_a_level_is_over_the_limit_where_the_share_is(share: float) -> None:
    assert (level_of(share) in _WRONG) == (share > 1)
