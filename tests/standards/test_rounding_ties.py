"""Drift and exact ties: a value halfway between two neighbours may be rounded to either."""

from __future__ import annotations

import pytest
import torch

from msprobe_standards import Policy, Verdict, judge

DEFAULT = Policy.load("default")
DTYPES = [torch.bfloat16, torch.float16]


def neighbours(exact: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the values of a dtype next to exact ones, the one nearer to zero first."""
    nearest = exact.to(dtype)
    inner = torch.where(
        nearest.double().abs() > exact.abs(), torch.nextafter(nearest, torch.zeros_like(nearest)), nearest
    )
    return inner, torch.nextafter(inner, inner.sign() * torch.inf)


def sums(dtype: torch.dtype, count: int = 4000) -> torch.Tensor:
    """Return sums of two numbers of one binade, of which half lie halfway between two of their dtype."""
    one, other = (1 + torch.rand(count, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    return one.to(dtype).double() + other.to(dtype).double()


def judged(target: torch.Tensor, exact: torch.Tensor, api: str = "add") -> Verdict:
    by = DEFAULT.select(api, output_dtype=target.dtype)
    return judge(target, exact.float(), standard=by, baseline=exact.to(target.dtype))


def away(exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    inner, outer = neighbours(exact, dtype)
    return torch.where(exact.abs() - inner.double().abs() >= outer.double().abs() - exact.abs(), outer, inner)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_ties_rounded_away_from_zero_are_no_drift(dtype: torch.dtype) -> None:
    exact = sums(dtype)
    target = away(exact, dtype)
    assert (target != exact.to(dtype)).float().mean() > 0.2
    assert judged(target, exact).outcome == "pass"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_cutting_off_is_a_drift_where_it_errs_in_ties_too(dtype: torch.dtype) -> None:
    exact = sums(dtype)
    inner, _ = neighbours(exact, dtype)
    verdict = judged(inner, exact)
    assert verdict.outcome == "fail"
    assert verdict.metrics["gain_error"] > verdict.limits["gain_error"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rounding_up_what_is_no_tie_stays_a_drift(dtype: torch.dtype) -> None:
    exact = sums(dtype) * 1.2345
    inner, outer = neighbours(exact, dtype)
    verdict = judged(torch.where(exact == inner, inner, outer), exact)
    assert verdict.outcome == "fail"
    assert verdict.metrics["gain_error"] > verdict.limits["gain_error"]
