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
from pytest_msprobe.modes.compare.measure.accumulate import equal_metrics
from pytest_msprobe.modes.compare.measure.tensor_pairs import are_equal, measure_tensors
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, STATISTICS_METRICS, TENSOR_METRICS

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
    page = (Path(__file__).parents[4] / "docs" / "standards-reference.md").read_text(encoding="utf-8")
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


def test_large_integers_are_distinguished() -> None:
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


def formulas(target: torch.Tensor, golden: torch.Tensor) -> dict[str, float]:
    """Return the metrics of two real tensors without NaN and inf, all of them computed in float64."""
    t, g = target.double().flatten().numpy(), golden.double().flatten().numpy()
    d, forms = np.abs(t - g), [torch.finfo(tensor.dtype) for tensor in (target, golden)]
    with np.errstate(all="ignore"):
        relative = np.where(d == 0, 0.0, d / np.abs(g))
        coarser = max(forms, key=lambda form: form.eps)
        power = np.exp2(np.frexp(np.maximum(np.abs(g), coarser.smallest_normal))[1] - 1.0)
        ulps = d / power / coarser.eps
    return {
        "euclidean": math.sqrt(math.fsum(d * d)),
        "max_abs_err": d.max(),
        "rel_err_max": relative.max(),
        "rel_err_thousandth": np.mean(relative < 0.001),
        "rel_err_five_thousandths": np.mean(relative < 0.005),
        "nonfinite_mismatch": 0.0,
        "max_ulp_error": ulps.max(),
    }


def assert_measured(target: torch.Tensor, golden: torch.Tensor) -> None:
    """Assert that what is reported of two tensors is what the formulas give in float64, sums but for their order."""
    metrics, expected = measure_tensors(target, golden).metrics, formulas(target, golden)
    assert metrics["euclidean"] == pytest.approx(expected.pop("euclidean"), rel=1e-14)
    assert {name: metrics[name] for name in expected} == expected


ANY_FLOATS = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.floats(-(2.0**-120), 2.0**-120, width=32),
    st.floats(-8, 8, width=16),
    st.just(0.0),
)


@given(st.lists(st.tuples(ANY_FLOATS, ANY_FLOATS, st.booleans()), min_size=1, max_size=30))
def test_single_precision_is_reported_as_double_precision_has_it(elements: list[tuple[float, float, bool]]) -> None:
    golden = torch.tensor([g for g, _, _ in elements])
    assert_measured(torch.tensor([g if same else t for g, t, same in elements]), golden)


@pytest.mark.parametrize("far", [0, 1_000], ids=["few", "many"])
@pytest.mark.parametrize("limit", [0.001, 0.005])
def test_elements_next_to_a_limit_are_counted_on_their_side_of_it(limit: float, far: int) -> None:
    magnitudes = torch.linspace(1, 2, 2_000, dtype=torch.float64)
    steps = torch.arange(2_000) % 9 - 4
    golden = torch.cat([magnitudes.float(), torch.ones(far), torch.tensor([250.0, 1000.0])])
    near = (golden[:2_000].double() * (1 + limit)).float()
    target = torch.cat([near * (1 + steps * 2.0**-23), torch.full((far,), 1.01), torch.tensor([250.25, 1005.0])])
    assert_measured(target, golden)


DTYPES = [
    (torch.float32, torch.float32),
    (torch.bfloat16, torch.bfloat16),
    (torch.float16, torch.float16),
    (torch.bfloat16, torch.float32),
    (torch.float16, torch.float64),
    (torch.float64, torch.float64),
]


@pytest.mark.parametrize("dtypes", DTYPES, ids=str)
@pytest.mark.parametrize("noise", [1e-6, 1e-3, 1.0])
def test_tensors_of_several_parts_have_the_metrics_of_the_formulas(
    dtypes: tuple[torch.dtype, torch.dtype], noise: float
) -> None:
    generator = torch.Generator().manual_seed(7)
    golden = torch.randn(150_001, generator=generator, dtype=torch.float64).relu()
    target = golden * (1 + noise * torch.randn(golden.shape, generator=generator, dtype=torch.float64))
    target[: len(golden) // 2] += noise / 10
    target, golden = (side.to(dtype) for side, dtype in zip((target, golden), dtypes, strict=True))
    assert_measured(target, golden)
    t, g = target.double().numpy(), golden.double().numpy()
    cosine = math.fsum(t * g) / math.sqrt(math.fsum(t * t) * math.fsum(g * g))
    assert measure_tensors(target, golden).metrics["cosine_sim"] == pytest.approx(cosine, rel=1e-14)


def test_a_difference_beyond_single_precision_is_reported() -> None:
    golden = torch.tensor([1.0, -3e38, 2.0, math.inf])
    target = torch.tensor([1.0, 3e38, 2.5, math.inf])
    measured = measure_tensors(target, golden)
    assert measured.metrics["max_abs_err"] == float(target[1]) - float(golden[1])
    assert measured.worst == (1,)


def test_subnormal_numbers_in_place_of_zeros_are_reported() -> None:
    golden = torch.tensor([0.0, 1e-45, 0.0, 1.0])
    measured = measure_tensors(torch.tensor([0.0, 3e-45, 0.0, 1.0]), golden).metrics
    assert (measured["max_ulp_error"], measured["rel_err_max"], measured["rel_err_thousandth"]) == (1.0, 1.0, 0.75)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.complex64, torch.int32])
def test_of_equal_tensors_is_reported_what_is_measured(dtype: torch.dtype) -> None:
    values = torch.randn(140_000, generator=torch.Generator().manual_seed(1)).mul(100).to(dtype)
    assert are_equal(values, values.clone())
    reported = equal_metrics(values.numel(), has_ulps=dtype.is_floating_point or dtype.is_complex)
    assert reported == measure_tensors(values.clone(), values).scaled_metrics


def test_one_other_element_makes_tensors_unequal() -> None:
    golden = torch.ones(140_000)
    target = golden.clone()
    target[-1] += 1e-7
    assert not are_equal(target, golden)
    assert not are_equal(golden.bfloat16(), golden)


def test_integers_are_exact_where_double_precision_ends() -> None:
    for limit in (2**51, 2**52, 2**53):
        golden = torch.tensor([limit, -limit, 3])
        for step in (-1, 1):
            measured = measure_tensors(golden + torch.tensor([0, step, 0]), golden)
            assert (measured.metrics["max_abs_err"], measured.worst) == (1, (1,))


def test_the_worst_element_is_found_in_any_layout_and_beyond_the_first_chunk() -> None:
    golden = torch.randn(600, 300, generator=torch.Generator().manual_seed(0))
    target = golden.clone()
    target[551, 7] += 3
    assert measure_tensors(target, golden).worst == (551, 7)
    assert measure_tensors(target.T, golden.T).worst == (7, 551)


def test_complex_numbers_are_compared_by_their_parts() -> None:
    golden = torch.tensor([1 + 1j, 2 - 2j])
    measured = measure_tensors(golden + torch.tensor([0, 1j]), golden)
    assert measured.metrics["max_abs_err"] == 1
    assert measured.worst == (1,)


def test_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="shape"):
        measure_tensors(torch.zeros(2), torch.zeros(3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_what_nan_hides_is_measured_of_the_other_elements(dtype: torch.dtype) -> None:
    golden = torch.tensor([1.0, 2.0, float("inf"), 4.0], dtype=dtype)
    target = torch.tensor([float("nan"), 2.5, float("inf"), 4.0], dtype=dtype)
    metrics = measure_tensors(target, golden).metrics
    assert metrics["max_abs_err"] == math.inf
    assert metrics["finite_max_abs_err"] == 0.5
    assert "finite_max_abs_err" not in measure_tensors(golden, golden).metrics
