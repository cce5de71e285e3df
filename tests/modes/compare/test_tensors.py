"""Metrics of tensors, against plain numpy in float64 and known cases."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from msprobe_standards import METRICS, measure
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, STATISTICS_METRICS, TENSOR_METRICS
from pytest_msprobe.modes.compare.tensors import measure_tensors

FLOATS = st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=50)


@given(FLOATS, st.integers(0, 2**32 - 1))
def test_metrics_are_those_of_the_formulas(values: list[float], seed: int) -> None:
    golden = torch.tensor(values, dtype=torch.float32)
    noise = np.random.default_rng(seed).normal(0, 1e-3, len(values))
    target = (golden.double() * (1 + torch.from_numpy(noise))).float()
    t, g = target.double().numpy(), golden.double().numpy()
    d = np.abs(t - g)
    with np.errstate(all="ignore"):
        relative = np.where(d == 0, 0.0, d / np.abs(g))
    metrics = measure_tensors(target, golden).metrics
    assert metrics["max_abs_err"] == d.max()
    assert metrics["rel_err_max"] == relative.max()
    assert metrics["euclidean"] == pytest.approx(math.sqrt(math.fsum(d * d)))
    assert metrics["rel_err_thousandth"] == np.mean(relative < 0.001)
    assert metrics["rel_err_five_thousandths"] == np.mean(relative < 0.005)
    if g.any() and t.any() and np.abs(g[g != 0]).min() > 1e-30:
        expected = math.fsum(t * g) / math.sqrt(math.fsum(t * t) * math.fsum(g * g))
        assert metrics["cosine_sim"] == pytest.approx(expected)


@given(FLOATS, st.integers(0, 2**32 - 1), st.sampled_from([torch.float16, torch.float32]))
def test_a_metric_that_checks_have_too_is_the_same_number(values: list[float], seed: int, dtype: torch.dtype) -> None:
    golden = torch.tensor([value % 1000 + 1 for value in values], dtype=torch.float64).to(dtype)
    noise = np.random.default_rng(seed).normal(0, 1e-3, len(values))
    target = (golden.double() * (1 + torch.from_numpy(noise))).to(dtype)
    compared, checked = measure_tensors(target, golden).metrics, measure(target, golden)
    shared = set(TENSOR_METRICS) & set(METRICS)
    assert shared == {"cosine_sim", "max_abs_err", "max_ulp_error", "nonfinite_mismatch", "rel_err_thousandth"}
    assert {name: compared[name] for name in shared} == pytest.approx({name: checked[name] for name in shared})


def test_every_metric_of_a_comparison_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "standards.md").read_text(encoding="utf-8")
    section = page.partition("### Metrics of a comparison")[2].partition("\n#")[0]
    assert [name for name in (SCALED_ERROR, *TENSOR_METRICS, *STATISTICS_METRICS) if f"`{name}`" not in section] == []


def test_zeros_of_both_sides_agree_in_half_precision() -> None:
    golden = torch.tensor([0.0, 0.0, 1.0, 2.0], dtype=torch.float16)
    metrics = measure_tensors(golden.clone(), golden).metrics
    assert metrics["rel_err_max"] == 0
    assert metrics["rel_err_thousandth"] == metrics["rel_err_five_thousandths"] == 1
    off = measure_tensors(torch.tensor([0.0, 1e-4, 1.0, 2.0], dtype=torch.float16), golden).metrics
    assert off["rel_err_max"] == math.inf
    assert off["rel_err_thousandth"] == 0.75


def test_infinities_of_opposite_sign_disagree() -> None:
    measured = measure_tensors(torch.tensor([1.0, math.inf, math.nan]), torch.tensor([1.0, -math.inf, math.nan]))
    assert measured.metrics["nonfinite_mismatch"] == 1
    assert measured.metrics["max_abs_err"] == math.inf
    assert "cosine_sim" not in measured.metrics
    assert measured.worst == (1,)


def test_equal_infinities_and_nans_have_no_error() -> None:
    values = torch.tensor([1.0, math.inf, -math.inf, math.nan])
    metrics = measure_tensors(values.clone(), values).metrics
    assert metrics["max_abs_err"] == metrics["nonfinite_mismatch"] == 0
    assert metrics["rel_err_thousandth"] == 1


def test_unsigned_integers_do_not_wrap_around() -> None:
    measured = measure_tensors(torch.tensor([2, 9], dtype=torch.uint8), torch.tensor([3, 9], dtype=torch.uint8))
    assert measured.metrics["max_abs_err"] == 1
    assert measured.worst == (0,)


def test_large_integers_are_told_apart() -> None:
    measured = measure_tensors(torch.tensor([2**60 + 1, 0]), torch.tensor([2**60, 0]))
    assert measured.metrics["max_abs_err"] == 1
    assert measured.worst == (0,)


def test_tiny_errors_are_kept() -> None:
    golden = torch.full((3,), 1e-20, dtype=torch.float64)
    assert measure_tensors(golden * 1.5, golden).metrics["max_abs_err"] == pytest.approx(5e-21)
    assert measure_tensors(golden * 1e-160, golden * 2e-160).metrics["euclidean"] > 0


def test_scalars_have_errors_and_no_angle() -> None:
    metrics = measure_tensors(torch.tensor(2.0), torch.tensor(1.0)).metrics
    assert metrics["max_abs_err"] == metrics["euclidean"] == metrics["rel_err_max"] == 1
    assert "cosine_sim" not in metrics


def test_zeros_in_place_of_ones_have_no_angle_in_common() -> None:
    metrics = measure_tensors(torch.zeros(4), torch.ones(4)).metrics
    assert (metrics["cosine_sim"], metrics["rel_err_max"]) == (0.0, 1.0)
    assert measure_tensors(torch.zeros(4), torch.zeros(4)).metrics["cosine_sim"] == 1.0


def test_errors_in_the_last_place_are_counted_in_the_coarser_dtype() -> None:
    golden = torch.tensor([1.0, 3.0])
    target = golden + torch.tensor([0.0, 2 * torch.finfo(torch.float32).eps * 2])
    assert measure_tensors(target, golden).metrics["max_ulp_error"] == 2
    rounded = torch.tensor([1.0, 3.015625], dtype=torch.bfloat16)
    assert measure_tensors(rounded, golden).metrics["max_ulp_error"] == 1


SMALL_AND_LARGE = st.lists(
    st.one_of(st.floats(-1e6, 1e6, width=32), st.floats(-(2.0**-120), 2.0**-120, width=32)), min_size=1, max_size=30
)


@given(SMALL_AND_LARGE, st.data())
def test_the_error_in_the_last_place_is_that_of_every_element_looked_at(
    values: list[float], data: st.DataObject
) -> None:
    golden = torch.tensor(values, dtype=torch.float32)
    steps = st.lists(st.integers(-50, 50), min_size=len(values), max_size=len(values))
    target = (golden.double() * (1 + torch.tensor(data.draw(steps)) * 2.0**-23)).float()
    expected = 0.0
    for t, g in zip(target.tolist(), golden.tolist(), strict=True):
        exponent = max(math.frexp(g)[1] - 1, -126) if g else -126
        expected = max(expected, abs(t - g) / 2.0 ** (exponent - 23))
    assert measure_tensors(target, golden).metrics["max_ulp_error"] == expected


def test_the_worst_element_is_found_in_any_layout_and_beyond_the_first_chunk() -> None:
    golden = torch.randn(300, 200, generator=torch.Generator().manual_seed(0))
    target = golden.clone()
    target[251, 7] += 3
    assert measure_tensors(target, golden).worst == (251, 7)
    assert measure_tensors(target.T, golden.T).worst == (7, 251)


def test_complex_numbers_are_compared_by_their_parts() -> None:
    golden = torch.tensor([1 + 1j, 2 - 2j])
    measured = measure_tensors(golden + torch.tensor([0, 1j]), golden)
    assert measured.metrics["max_abs_err"] == 1
    assert measured.worst == (1,)


def test_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="shape"):
        measure_tensors(torch.zeros(2), torch.zeros(3))
