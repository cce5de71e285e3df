from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from msprobe_standards import Policy, Verdict, judge
from msprobe_standards.correlated_error import shared_error

HALVES = [torch.float16, torch.bfloat16]
seeds = st.integers(0, 2**31)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def moved(golden: torch.Tensor, dtype: torch.dtype, steps: torch.Tensor) -> torch.Tensor:
    """Return golden rounded to a dtype and moved by so many values (0, 1 or -1)."""
    rounded = golden.to(dtype)
    beyond = torch.nextafter(rounded, torch.where(steps > 0, math.inf, -math.inf).to(dtype))
    return torch.where(steps == 0, rounded, beyond)


def by_definition(target: torch.Tensor, golden: torch.Tensor, dtype: torch.dtype) -> tuple[float, float]:
    """Compute the shared error of values near one in exact arithmetic, as docs/standards-reference.md defines it."""
    roundoff = mpmath.mpf(torch.finfo(dtype).eps) / 2
    cells: dict[float, list[mpmath.mpf]] = defaultdict(list)
    for t, v in zip(target.double().tolist(), golden.to(dtype).double().tolist(), strict=True):
        error = (mpmath.mpf(t) - mpmath.mpf(v)) / abs(v) / roundoff
        cells[v].append(max(min(error, mpmath.mpf(2)), mpmath.mpf(-2)))
    means = [mpmath.fsum(cells[v]) / len(cells[v]) for v in sorted(cells)]
    wrong = [mean for mean in means if mean]
    products = [a * b for a, b in pairwise(wrong)]
    if len(products) < 50:
        return 0.0, 0.0
    total = mpmath.fsum(products)
    z = total / mpmath.sqrt(mpmath.fsum(p * p for p in products))
    return float(mpmath.sqrt(max(total, mpmath.mpf(0)) / len(means))), float(z)


@given(seeds, st.sampled_from(HALVES), st.floats(0, 1), st.floats(-1, 1), st.integers(1, 400))
@settings(max_examples=60, deadline=None)
def test_it_is_what_its_definition_says(
    seed: int, dtype: torch.dtype, share: float, lean: float, elements: int
) -> None:
    golden = 1 + normal(elements, seed=seed).abs()
    chance = torch.rand(2, elements, generator=torch.Generator().manual_seed(seed))
    steps = torch.where(chance[0] < share, torch.where(chance[1] * 2 - 1 < lean, 1, -1), 0)
    target = moved(golden, dtype, steps)
    assert shared_error(target, golden, dtype) == pytest.approx(by_definition(target, golden, dtype), abs=1e-9)


@given(st.lists(st.floats(-6e4, 6e4), max_size=300), st.sampled_from(HALVES))
@settings(max_examples=60, deadline=None)
def test_a_result_that_is_rounded_once_shares_no_error(values: list[float], dtype: torch.dtype) -> None:
    golden = torch.tensor(values, dtype=torch.float64)
    assert shared_error(golden.to(dtype), golden, dtype) == (0.0, 0.0)


@given(seeds, st.sampled_from(HALVES), st.integers(-8, 8))
@settings(max_examples=30, deadline=None)
def test_order_sign_and_scale_do_not_matter(seed: int, dtype: torch.dtype, power: int) -> None:
    golden = normal(600, seed=seed)
    target = (golden * 1.004).to(dtype)
    order = torch.randperm(600, generator=torch.Generator().manual_seed(seed))
    found = shared_error(target, golden, dtype)
    assert found[1] > 7 or dtype == torch.bfloat16
    assert shared_error(target[order].view(20, 30), golden[order].view(20, 30), dtype) == pytest.approx(found)
    assert shared_error(-target, -golden, dtype) == pytest.approx(found)
    # Below the normal range a format is coarser than its unit roundoff says.
    large = golden.abs() > 2**-4
    scale = 2.0**power
    expected = shared_error(target[large], golden[large], dtype)
    assert shared_error(target[large] * scale, golden[large] * scale, dtype) == pytest.approx(expected)


@given(seeds, st.sampled_from(HALVES), st.floats(0.01, 1), st.integers(100, 5000))
@settings(max_examples=100, deadline=None)
def test_errors_that_go_up_and_down_by_chance_are_never_certain(
    seed: int, dtype: torch.dtype, share: float, elements: int
) -> None:
    golden = normal(elements, seed=seed)
    chance = torch.rand(2, elements, generator=torch.Generator().manual_seed(seed + 1))
    steps = torch.where(chance[0] < share, torch.where(chance[1] < 0.5, 1, -1), 0)
    assert shared_error(moved(golden, dtype, steps), golden, dtype)[1] < 7


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("rows", [16, 64])
def test_rounding_twice_is_never_certain(dtype: torch.dtype, rows: int) -> None:
    # Most elements of a cell are misrounded toward its nearer end: by elements, the errors would look alike.
    golden = normal(rows, 1024, seed=rows)
    weight = 0.7 + 0.02 * normal(1024, seed=1).to(dtype).double()
    target = (golden.to(dtype).double() * weight).to(dtype)
    assert shared_error(target, golden * weight, dtype)[1] < 7


def test_nan_and_infinities_are_left_out() -> None:
    golden = torch.cat([normal(500), torch.tensor([math.nan, math.inf, -math.inf, 1e300], dtype=torch.float64)])
    target = (golden * 1.002).half()
    target[-4:] = torch.tensor([1.0, math.nan, math.inf, math.inf])
    assert shared_error(target, golden, torch.float16) == shared_error(target[:500], golden[:500], torch.float16)


def test_noise_of_float32_sums_is_no_error() -> None:
    golden = normal(4000) * 1e-9
    golden[0] = 4000.0
    assert shared_error((golden * 1.1).bfloat16(), golden, torch.bfloat16) == (0.0, 0.0)


def test_of_large_tensors_a_sample_decides() -> None:
    golden = normal(512, 512)
    for layout in (golden, golden.T):
        error, certainty = shared_error((layout * 1.001).half(), layout, torch.float16)
        assert error == pytest.approx(1e-3 * 2**11, rel=0.2)
        assert certainty > 50


def test_complex_numbers_are_their_parts() -> None:
    golden = torch.view_as_complex(normal(300, 2))
    found = shared_error((golden * 1.00001).to(torch.complex64), golden, torch.complex64)
    parts = torch.view_as_real(golden)
    assert found == shared_error((parts * 1.00001).float(), parts, torch.float32)


def waves(value: mpmath.mpf) -> mpmath.mpf:
    return value * (1 + mpmath.mpf("1e-3") * mpmath.sin(37 * value))


FUNCTIONS: dict[str, Callable[[mpmath.mpf], mpmath.mpf]] = {
    "tanh": mpmath.tanh,
    "exp": mpmath.exp,
    "rsqrt": lambda x: 1 / mpmath.sqrt(abs(x)),
    "sin": mpmath.sin,
    "pow": lambda x: abs(x) ** mpmath.mpf("2.5"),
}


@pytest.mark.parametrize("api", FUNCTIONS)
def test_a_part_in_a_thousand_is_found_in_float16_and_a_rounded_result_is_not(api: str) -> None:
    x = 2 * normal(600).half().double()
    with mpmath.workdps(30):
        exact = [FUNCTIONS[api](mpmath.mpf(value)) for value in x.tolist()]
        golden = torch.tensor([float(value) for value in exact], dtype=torch.float64)
        coarse = torch.tensor([float(waves(value)) for value in exact], dtype=torch.float64)

    def verdict(result: torch.Tensor) -> Verdict:
        by = Policy.load("default").select(api, output_dtype=torch.float16)
        return judge(result.half(), golden, standard=by, baseline=golden.half())

    assert verdict(golden).outcome == verdict(golden.float()).outcome == "pass"
    assert verdict(coarse).outcome == "fail"
    assert "neighbouring values err alike" in verdict(coarse).reason


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("elements", [64, 1000, 30000])
def test_steps_in_float16_raise_no_alarm(elements: int, seed: int) -> None:
    x = 2 * normal(elements, seed=seed).half()
    by = Policy.load("default").select("sigmoid", output_dtype=torch.float16)
    assert judge(1 / (1 + (-x).exp()), x.double().sigmoid(), standard=by, baseline=x.sigmoid()).outcome == "pass"


def test_gelu_by_its_other_formula_is_found_in_bfloat16() -> None:
    x = normal(8192).bfloat16()
    gelu = torch.nn.functional.gelu
    by = Policy.load("default").select("gelu", output_dtype=torch.bfloat16)

    def verdict(result: torch.Tensor) -> Verdict:
        return judge(result.bfloat16(), gelu(x.double()), standard=by, baseline=gelu(x))

    assert verdict(0.5 * x.float() * (1 + torch.erf(x.float() * 0.5**0.5))).outcome == "pass"
    assert verdict(gelu(x.double(), approximate="tanh")).outcome == "fail"


@pytest.mark.parametrize("rows", [4, 32])
def test_an_unbiased_variance_is_found_in_bfloat16(rows: int) -> None:
    x = normal(rows, 768).bfloat16()
    wide = x.double()
    weight, bias = (1 + 0.2 * normal(768, seed=1)).bfloat16(), (0.2 * normal(768, seed=2)).bfloat16()
    by = Policy.load("default").select("layer_norm", output_dtype=torch.bfloat16)

    def normed(x: torch.Tensor, correction: int) -> torch.Tensor:
        return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=correction) + 1e-5).sqrt()

    def verdict(result: torch.Tensor) -> Verdict:
        golden = normed(wide, 0) * weight.double() + bias.double()
        return judge(result.bfloat16(), golden, standard=by, baseline=golden.bfloat16())

    assert verdict(normed(wide, 1) * weight.double() + bias.double()).outcome == "fail"
    assert verdict(normed(x.float(), 0) * weight + bias).outcome == "pass"
    # Rounded before the weight and before the bias, too.
    assert verdict(normed(x.float(), 0).bfloat16() * weight + bias).outcome == "pass"
