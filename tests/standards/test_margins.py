"""Margins that can be compared: a greater error never uses less of what is allowed."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from msprobe_standards import Policy, Verdict, judge

DEFAULT = Policy.load("default")
UNITS = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


def judged(
    dtype: torch.dtype, api: str, backward: bool, error: float, cpu_error: float, one_element: bool = False
) -> Verdict:
    generator = torch.Generator().manual_seed(7)
    golden = torch.randn(300, generator=generator, dtype=torch.float64)

    def erring(units: float, seed: int) -> torch.Tensor:
        error = torch.randn(300, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        if one_element:
            error[1:] = 0
        return golden + units * UNITS[dtype] * error * golden.abs().clamp_min(golden.abs().mean())

    by = DEFAULT.select(api, output_dtype=dtype, backward=backward)
    # The errors are those of the dtype, and are not rounded to it: only their size is to matter.
    return judge(erring(error, 1), golden, standard=by, baseline=lambda: erring(cpu_error, 2), dtype=dtype)


@given(
    dtype=st.sampled_from(list(UNITS)),
    api=st.sampled_from(["scaled_dot_product_attention", "layer_norm", "linear", "softmax", "sum"]),
    backward=st.booleans(),
    errors=st.tuples(st.floats(0, 400), st.floats(0, 400)),
    cpu_error=st.sampled_from([0.1, 1.0, 10.0, 100.0]),
    one_element=st.booleans(),
)
def test_margins_grow_with_the_error(
    dtype: torch.dtype, api: str, backward: bool, errors: tuple[float, float], cpu_error: float, one_element: bool
) -> None:
    less, more = (judged(dtype, api, backward, error, cpu_error, one_element) for error in sorted(errors))
    # A bound says nothing of what is measured for a greater error.
    assert less.at_most or more.at_most or less.margin <= more.margin * (1 + 1e-9)
    # Two bounds are measured against one limit, and no bound is beyond what is worth measuring.
    assert not (less.at_most and more.at_most) or less.margin <= more.margin * (1 + 1e-9)
    assert all(verdict.margin <= 0.75 for verdict in (less, more) if verdict.at_most)
    assert not more.at_most or less.at_most or less.outcome == "fail" or less.margin == 0


@pytest.mark.parametrize("error", [0.5, 7.5, 9.5, 12.0])
def test_a_margin_is_a_share_of_the_limit_that_the_baseline_gives(error: float) -> None:
    verdict = judged(torch.float32, "softmax", True, error, 100.0)
    # A root mean square of 4 times the baseline's 100 units is allowed, and (1 + 8 / sqrt(300)) wider.
    share = verdict.metrics["rms_scaled_error"] / (4 * 100 * (1 + 8 / 300**0.5))
    if verdict.at_most:
        assert share < verdict.margin <= 0.75
    else:
        assert verdict.margin == pytest.approx(share, rel=0.2)


def test_a_baseline_is_not_computed_for_a_small_error() -> None:
    golden = torch.randn(300, generator=torch.Generator().manual_seed(7), dtype=torch.float64)

    def forbidden() -> torch.Tensor:
        raise AssertionError("the baseline was asked for")

    verdict = judge(golden.float(), golden, standard="benchmark", baseline=forbidden)
    assert verdict.outcome == "pass"


def test_a_margin_without_a_baseline_stays_a_bound_of_the_lower_limit() -> None:
    golden = torch.randn(300, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    target = (golden * (1 + 20 * 2.0**-24)).float()
    verdict = judge(target, golden, standard="benchmark")
    assert (verdict.outcome, verdict.at_most, verdict.reason) == ("pass", True, "")
    assert verdict.margin > 0.75
