"""An output measured block by block has the numbers that it has as a whole."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from msprobe_standards import METRICS, measure, msprobe_bounds
from msprobe_standards.blocks import BlockMeasure, mean_magnitude

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def outputs(seed: int, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    golden = torch.randn(shape, generator=generator, dtype=torch.float64) * 10 ** (seed % 5 - 2)
    target = (golden * (1 + 1e-3 * torch.randn(shape, generator=generator, dtype=torch.float64))).to(dtype)
    if seed % 3 == 0:
        target.view(-1)[seed % target.numel()] = float("nan")
    if seed % 4 == 0:
        golden.view(-1)[seed % target.numel()] = float("inf")
    return target, golden


def in_blocks(target: torch.Tensor, golden: torch.Tensor, dim: int, size: int, scale: float) -> BlockMeasure:
    dtype = target.dtype
    found = BlockMeasure(target.shape, dtype, METRICS, msprobe_bounds(dtype), scale)
    for start in range(0, target.shape[dim], size):
        block = slice(start, start + size)
        at = tuple(block if each == dim else slice(None) for each in range(target.dim()))
        found.add([start if each == dim else 0 for each in range(target.dim())], target[at], golden[at])
    return found


@given(
    st.integers(0, 2**20),
    st.lists(st.integers(1, 40), min_size=1, max_size=3).map(tuple),
    st.sampled_from(DTYPES),
    st.integers(0, 2),
    st.integers(1, 20),
)
@settings(max_examples=40, deadline=None)
def test_blocks_along_any_dimension_have_the_numbers_of_the_whole(
    seed: int, shape: tuple[int, ...], dtype: torch.dtype, dim: int, size: int
) -> None:
    target, golden = outputs(seed, shape, dtype)
    whole = measure(target, golden)
    found = in_blocks(target, golden, dim % len(shape), size, whole["scale"])
    assert found.golden_scale == pytest.approx(whole["scale"], rel=1e-12)
    metrics = found.metrics()
    assert dict(metrics) == pytest.approx(dict(whole), rel=1e-9, abs=1e-12, nan_ok=True)
    assert (metrics.numel, metrics.dtype) == (whole.numel, whole.dtype)


@pytest.mark.parametrize(("dim", "size"), [*itertools.product((0, 1, 2), (1, 3, 100))])
def test_the_worst_element_is_found_where_it_is(dim: int, size: int) -> None:
    _, golden = outputs(1, (5, 40, 7), torch.float32)
    target = golden.float()
    target[3, 17, 2] += 9
    assert in_blocks(target, golden, dim, size, 1.0).metrics().worst_index == (3, 17, 2)


def test_the_same_elements_of_a_large_output_are_sampled_for_what_neighbours_share() -> None:
    golden = torch.rand(700, 301, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target = (golden + 2**-7 * golden * torch.sin(9 * golden)).bfloat16()
    whole = measure(target, golden)
    assert whole["shared_z"] > 0
    for dim in (0, 1):
        found = in_blocks(target, golden, dim, 64, whole["scale"]).metrics()
        assert {name: found[name] for name in ("shared_error", "shared_z")} == pytest.approx(
            {name: whole[name] for name in ("shared_error", "shared_z")}, rel=1e-9
        )


def test_squares_that_leave_float64_are_reported() -> None:
    golden = torch.full((4, 4), 1e200, dtype=torch.float64)
    assert not in_blocks(golden * 2, golden, 0, 2, 1e200).is_in_range


def test_the_mean_magnitude_is_that_of_finite_elements() -> None:
    assert mean_magnitude(torch.tensor([1.0, -3.0, float("nan"), float("inf")])) == 2.0
    assert mean_magnitude(torch.tensor([float("nan")])) == 0.0
