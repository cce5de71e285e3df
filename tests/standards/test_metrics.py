from __future__ import annotations

import math
import struct
from concurrent.futures import ThreadPoolExecutor

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from msprobe_standards import METRICS, measure
from msprobe_standards.chunking import CHUNK

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
EIGHT_BITS = [
    getattr(torch, name)
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
    if hasattr(torch, name)
]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64]
NAN, INF = math.nan, math.inf


def noisy(shape: tuple[int, ...], seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    golden = torch.randn(shape, generator=generator, dtype=torch.float64)
    return (golden * (1 + torch.randn(shape, generator=generator, dtype=torch.float64) * 1e-6)).float(), golden


def test_threads_that_measure_at_once_get_their_own_numbers() -> None:
    pairs = [noisy((CHUNK + size,), seed=size) for size in range(8)]
    alone = [measure(*pair) for pair in pairs]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda pair: measure(*pair), pairs * 4))
    assert together == alone * 4


def ulp_of(value: float, bits: int, exponent: int) -> mpmath.mpf:
    """The unit in the last place of a format with this many stored mantissa bits and this least exponent."""
    mantissa, power = mpmath.frexp(mpmath.mpf(abs(value)))
    return mpmath.ldexp(1, max(int(power) - 1 if mantissa else exponent, exponent) - bits)


@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6, width=32), st.floats(-1e6, 1e6)), min_size=1, max_size=50),
)
@example([(0.0, 5e-324)])
@settings(max_examples=100, deadline=None)
def test_float32_metrics_equal_a_computation_in_exact_arithmetic(pairs: list[tuple[float, float]]) -> None:
    metrics = measure(
        torch.tensor([t for t, _ in pairs], dtype=torch.float32),
        torch.tensor([g for _, g in pairs], dtype=torch.float64),
    )
    with mpmath.workdps(50):
        errors = [abs(mpmath.mpf(t) - mpmath.mpf(g)) for t, g in pairs]
        ulps = [error / ulp_of(g, 23, -126) for error, (_, g) in zip(errors, pairs, strict=True)]
        normal = [error / abs(mpmath.mpf(g)) for error, (_, g) in zip(errors, pairs, strict=True) if abs(g) > 2**-20]
        expected = {
            "max_abs_err": max(errors),
            "max_ulp_error": max(ulps),
            "mean_ulp_error": sum(ulps) / len(ulps),
            "max_rel_error": max(normal, default=0),
            "mean_rel_error": sum(normal) / len(normal) if normal else 0,
        }
    for name, value in expected.items():
        assert metrics[name] == pytest.approx(float(value), rel=1e-9, abs=1e-300), name


@given(st.integers(0, 2**16 - 1), st.integers(0, 2**16 - 1))
@settings(max_examples=200, deadline=None)
def test_the_ulp_error_between_neighbouring_float16_values_counts_steps(first: int, second: int) -> None:
    a, b = (struct.unpack("<e", struct.pack("<H", bits))[0] for bits in (first, second))
    if not (math.isfinite(a) and math.isfinite(b)):
        return
    metrics = measure(torch.tensor([a], dtype=torch.float16), torch.tensor([b], dtype=torch.float32))
    assert metrics["max_ulp_error"] == float(abs(mpmath.mpf(a) - mpmath.mpf(b)) / ulp_of(b, 10, -14))


@given(st.integers(1, 3 * CHUNK), st.integers(0, 10))
@settings(max_examples=10, deadline=None)
def test_chunks_do_not_show_in_the_metrics(elements: int, seed: int) -> None:
    target, golden = noisy((elements,), seed)
    metrics = measure(target, golden)
    t, g = target.numpy().astype(np.float64), golden.numpy()
    assert metrics["max_abs_err"] == np.abs(t - g).max()
    assert metrics["mean_ulp_error"] == pytest.approx(
        np.mean(np.abs(t - g) * 2.0 ** (23 - np.floor(np.log2(np.abs(g)))))
    )
    assert metrics["cosine_sim"] == pytest.approx(t @ g / np.sqrt((t @ t) * (g @ g)), rel=1e-12)
    assert metrics["scale"] == pytest.approx(np.abs(g).mean(), rel=1e-12)
    assert metrics["eb"] == abs(np.sign(t - g.astype("f4")).sum()) / elements


@given(st.permutations(range(40)), st.integers(0, 5))
@settings(max_examples=20, deadline=None)
def test_the_order_of_elements_does_not_matter(order: list[int], seed: int) -> None:
    target, golden = noisy((40,), seed)
    plain, mixed = measure(target, golden), measure(target[order], golden[order])
    for name in METRICS:
        assert mixed[name] == pytest.approx(plain[name], rel=1e-9, abs=1e-12), name


@pytest.mark.parametrize("dtype", [*FLOATS, *EIGHT_BITS])
def test_correct_rounding_errs_by_at_most_half_an_ulp(dtype: torch.dtype) -> None:
    wide = torch.float64 if dtype in (torch.float32, torch.float64) else torch.float32
    golden = torch.rand(500, dtype=wide) + 0.5
    metrics = measure(golden.to(dtype), golden)
    assert metrics["max_ulp_error"] <= 0.5
    assert metrics["cast_error_rate"] == 0


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("dtype", [torch.complex32, torch.complex64, torch.complex128])
def test_complex_errors_relate_to_the_modulus(dtype: torch.dtype) -> None:
    golden = torch.tensor([1000 + 1e-3j, 1 + 1j], dtype=torch.complex128)
    metrics = measure(golden.to(dtype), golden)
    assert metrics["max_ulp_error"] <= 0.5
    assert metrics["rel_err_thousandth"] == 1


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_lazy_conjugation_and_negation_are_resolved(dtype: torch.dtype) -> None:
    values = torch.tensor([1 + 2j, 3 - 4j], dtype=dtype)
    assert measure(values.conj(), values.to(torch.complex128).conj())["max_abs_err"] == 0
    assert measure(values.conj().imag, -values.imag.double())["max_abs_err"] == 0


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_are_compared_exactly_to_the_ends_of_their_range(dtype: torch.dtype) -> None:
    info = torch.iinfo(dtype)
    target, golden = torch.tensor([info.max, 3], dtype=dtype), torch.tensor([info.min, 3], dtype=dtype)
    metrics = measure(target, golden)
    assert metrics["error_rate"] == 0.5
    assert metrics["max_abs_err"] == float(info.max - info.min)
    assert metrics.worst_index == (0,)


def test_bools_are_compared() -> None:
    metrics = measure(torch.tensor([[True, False]]), torch.tensor([[True, True]]))
    assert (metrics["error_rate"], metrics.worst_index) == (0.5, (0, 1))


@pytest.mark.parametrize(
    ("target", "golden", "mismatches"),
    [
        ([NAN, INF, -INF], [NAN, INF, -INF], 0),
        ([NAN, 1.0], [1.0, 1.0], 1),
        ([1.0, 1.0], [NAN, 1.0], 1),
        ([INF, 1.0], [-INF, 1.0], 1),
        ([INF, 1.0], [NAN, 1.0], 1),
        ([INF, 1.0], [1e39, 1.0], 0),
        ([-INF, 1.0], [1e39, 1.0], 1),
        ([INF, 1.0], [3e38, 1.0], 1),
    ],
)
def test_nonfinite_elements_are_equal_by_sign_and_place(
    target: list[float], golden: list[float], mismatches: int
) -> None:
    metrics = measure(torch.tensor(target), torch.tensor(golden, dtype=torch.float64))
    assert metrics["nonfinite_mismatch"] == mismatches
    expected = INF if mismatches else 0
    assert metrics["max_abs_err"] == metrics["max_ulp_error"] == metrics["max_scaled_error"] == expected
    assert metrics["cast_error_rate"] == mismatches / len(target)


def test_the_index_of_a_lonely_nan_is_found_among_a_million_elements() -> None:
    target, golden = noisy((1000, 1000))
    target[777, 123] = NAN
    metrics = measure(target, golden)
    assert (metrics["nonfinite_mismatch"], metrics.worst_index) == (1, (777, 123))


@pytest.mark.parametrize("arrange", ["transposed", "strided", "expanded", "zero_dim", "narrow"])
def test_layout_does_not_matter(arrange: str) -> None:
    target, golden = noisy((300, 200))
    view = {
        "transposed": lambda x: x.t(),
        "strided": lambda x: x[::2, 1::3],
        "expanded": lambda x: x[:, :1].expand(300, 200),
        "zero_dim": lambda x: x[17, 3],
        "narrow": lambda x: x.reshape(-1, 2)[:, :1],
    }[arrange]
    views = measure(view(target), view(golden))
    copies = measure(view(target).contiguous(), view(golden).contiguous())
    assert dict(views) == pytest.approx(dict(copies), rel=1e-12)
    assert views.where == copies.where


def test_the_worst_index_of_a_non_contiguous_output_is_its_own() -> None:
    target, golden = noisy((70000, 3))
    target[50000, 1] += 1
    assert measure(target[:, :2], golden[:, :2]).worst_index == (50000, 1)


def test_empty_outputs_have_no_errors() -> None:
    metrics = measure(torch.empty(0, 3), torch.empty(0, 3, dtype=torch.float64))
    assert (metrics["max_abs_err"], metrics["error_rate"], metrics.numel, metrics.worst_index) == (0, 0, 0, None)


def test_extreme_float64_values_neither_overflow_nor_vanish() -> None:
    for scale in (1e300, 1e-300):
        golden = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
        plain, scaled = measure(golden * 1.25, golden), measure(golden * 1.25 * scale, golden * scale)
        for name in ("cosine_sim", "gain_error", "gain_z", "rms_scaled_error"):
            assert scaled[name] == pytest.approx(plain[name], rel=1e-9), name


def test_a_saturating_float8_cast_is_no_error() -> None:
    golden = torch.tensor([1e6, 1.3], dtype=torch.float32)
    target = golden.to(torch.float8_e4m3fn)
    assert measure(target, golden)["nonfinite_mismatch"] == 0
    assert measure(target, golden)["max_ulp_error"] <= 0.5


@pytest.mark.parametrize("zeros", [0, 100, 10 * CHUNK])
def test_elements_that_are_zero_do_not_change_what_errors_relate_to(zeros: int) -> None:
    target, golden = noisy((100,))
    golden[0], target[0] = 1e-3, 1e-3 + 1e-6
    alone = measure(target, golden)
    padded = measure(*(torch.cat([each, torch.zeros(zeros, dtype=each.dtype)]) for each in (target, golden)))
    assert padded["scale"] == pytest.approx(golden.abs().mean().item(), rel=1e-12)
    assert padded["max_scaled_error"] == pytest.approx(alone["max_scaled_error"], rel=1e-12)


def test_truncation_shows_as_negative_gain() -> None:
    golden = torch.randn(10000, dtype=torch.float64)
    rounded = golden.float()
    towards_zero = torch.where(rounded.double().abs() > golden.abs(), rounded.nextafter(torch.zeros(1)), rounded)
    metrics = measure(towards_zero, golden)
    assert -0.75 < metrics["gain_error"] < -0.55
    assert metrics["gain_z"] > 40
    assert measure(rounded, golden)["gain_z"] < 7


def test_dtype_shows_the_format_of_values_that_a_wider_tensor_carries() -> None:
    golden = torch.rand(100, dtype=torch.float32) + 1
    carried = golden.to(torch.bfloat16)
    assert dict(measure(carried.float(), golden, dtype=torch.bfloat16)) == dict(measure(carried, golden))


def test_only_the_wanted_groups_of_metrics_are_measured() -> None:
    target, golden = noisy((10,))
    assert set(measure(target, golden, only={"max_ulp_error"})) == {
        "max_abs_err",
        "nonfinite_mismatch",
        "max_ulp_error",
        "mean_ulp_error",
        "ulp_error_proportion",
    }
    assert set(measure(target, golden)) == set(METRICS)


def test_a_gradient_carrying_target_is_measured() -> None:
    assert measure(torch.ones(3, requires_grad=True), torch.ones(3, dtype=torch.float64))["max_abs_err"] == 0


@pytest.mark.parametrize(
    ("target", "golden", "only", "message"),
    [
        (torch.ones(2), torch.ones(3), None, r"shape \(2,\), golden has \(3,\)"),
        (torch.ones(2), torch.ones(2, dtype=torch.int64), None, "different kinds of number"),
        (torch.ones(2), torch.ones(2), {"max_ulp"}, r"unknown metric: max_ulp; did you mean 'max_ulp_error'\?"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    target: torch.Tensor, golden: torch.Tensor, only: set[str] | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        measure(target, golden, only=only)
