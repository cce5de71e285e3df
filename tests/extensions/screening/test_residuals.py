"""Evidence on products, held to products that are computed in full."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_msprobe.extensions.screening.config import examine
from pytest_msprobe.extensions.screening.tile_sums import Product


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 300), st.booleans(), st.integers(0, 2**32))
def test_sampled_elements_are_those_of_the_product(m: int, k: int, n: int, transposed: bool, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    left, right = torch.randn(m, k, generator=generator), torch.randn(n, k, generator=generator).mT
    if transposed:
        left = left.mT.contiguous().mT
    exact = left.double() @ right.double()
    evidence = examine([Product(left, right, exact.float())], seed)
    torch.testing.assert_close(evidence.golden, evidence.target.double(), rtol=1e-6, atol=1e-6)
    assert {*evidence.target.tolist()} <= {*exact.float().reshape(-1).tolist()}
    assert evidence.numel == m * n
    assert abs(evidence.scale - exact.abs().mean().item()) < 1e-6 * (1 + evidence.scale)


def test_rows_and_columns_of_the_greatest_element_and_the_longest_operands_are_among_the_sample() -> None:
    left, right = torch.randn(300, 50), torch.randn(50, 300)
    left[217] *= 100
    right[:, 111] *= 100
    result = left @ right
    seen = {*examine([Product(left, right, result)], 0).target.tolist()}
    assert {*result[217].tolist(), *result[:, 111].tolist()} <= seen


@settings(max_examples=5)
@given(st.integers(0, 2**32))
def test_one_row_of_each_tile_is_in_the_sample_and_neighbouring_tiles_have_it_at_other_places(seed: int) -> None:
    left, right = torch.ones(32 * 128, 1), torch.ones(1, 3)
    result = torch.arange(32 * 128.0)[:, None].expand(-1, 3).contiguous()
    target = examine([Product(left, right, result)], seed).target
    # Rows are reported first: those of the tiles, and those of the greatest element and of the longest row.
    rows = sorted({int(row) for row in target[: 34 * 3].tolist()} - {0, 32 * 128 - 1})
    assert {row // 128 for row in rows} >= {*range(1, 31)}
    assert len({row % 32 for row in rows}) >= 30


def test_a_nan_in_the_factors_of_any_of_several_products_is_reported() -> None:
    lefts, right = torch.randn(3, 150, 40), torch.randn(40, 140)
    results = lefts @ right
    for at in range(3):
        wrong = lefts.clone()
        wrong[at, 3, 4] = float("nan")
        products = [Product(left, right, result) for left, result in zip(wrong, results, strict=True)]
        assert not examine(products, 0).is_finite


def test_the_same_seed_gives_the_same_evidence() -> None:
    left, right = torch.randn(200, 60), torch.randn(60, 200)
    product = Product(left, right, left @ right)
    first, second, other = (examine([product], seed) for seed in (1, 1, 2))
    assert first.residuals == second.residuals != other.residuals
    assert torch.equal(first.golden, second.golden)


def test_no_operand_is_changed() -> None:
    left, right, added = torch.randn(200, 60).double(), torch.randn(60, 200).double(), torch.randn(200)
    result = (left @ right).float()
    kept = [each.clone() for each in (left, right, added, result)]
    examine([Product(left, right, result, added=added)], 0)
    assert all(map(torch.equal, kept, (left, right, added, result)))
