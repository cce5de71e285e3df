"""Reasons of failing verdicts: what fits into 80 columns says how many elements are wrong, and by how much."""

from __future__ import annotations

import torch

from msprobe_standards import judge, standard
from msprobe_standards.protocol import distinct_digits, number

GOLDEN = torch.linspace(-3, 3, 2000, dtype=torch.float64).reshape(50, 40)


def reason(target: torch.Tensor, **limits: float) -> str:
    """Judge a target of float32 by ULPs against `GOLDEN`, which it has to fail."""
    verdict = judge(target, GOLDEN, standard=standard("ulp", **limits))
    assert verdict.outcome == "fail"
    return verdict.reason


def test_a_reason_begins_with_the_wrong_elements_and_the_greatest_error() -> None:
    target = GOLDEN.float()
    target[3, 5] += 0.5
    count, _, rest = reason(target).partition(", up to ")
    assert count == "1 of 2000 elements wrong"
    assert rest.endswith(f" ulp (2 allowed); at [3, 5] {target[3, 5].item():.5g}, golden {GOLDEN[3, 5].item():.5g}")


def test_all_elements_wrong_are_said_to_be_all() -> None:
    assert reason(GOLDEN.float() + 1).startswith("all 2000 elements wrong, up to ")


def test_a_common_gain_is_said_first_and_in_per_cent() -> None:
    assert reason(GOLDEN.float() * 1.001, max_bias=1.0).startswith("all values 0.1 % too large; all 2000 elements wr")
    assert reason(GOLDEN.float() * 0.98, max_bias=1.0).startswith("all values 2 % too small; ")
    assert reason(GOLDEN.float() * 0.0, max_bias=1.0).startswith("all values 100 % too small; ")
    assert reason(GOLDEN.float() * 3, max_bias=1.0).startswith("all values 3 times golden; ")
    assert reason(GOLDEN.float() * -5, max_bias=1.0).startswith("all values -5 times golden; ")


def test_half_of_the_values_too_large_are_not_all() -> None:
    target = GOLDEN.float()
    target[:25] *= 1.001
    assert reason(target, max_bias=1.0).startswith("1000 of 2000 elements wrong, up to ")


def test_a_gain_of_most_of_the_large_values_is_not_said_to_be_of_all() -> None:
    golden = torch.linspace(0.5, 3, 2000, dtype=torch.float64)
    target = golden.float()
    target[600:] *= 1.001
    verdict = judge(target, golden, standard="benchmark", baseline=golden.float())
    assert verdict.metrics["gain_error"] > verdict.limits["gain_error"]
    assert verdict.reason.startswith("up to ")


def test_values_that_differ_are_shown_as_different() -> None:
    assert distinct_digits(0.25000001, 0.25) == ("0.25000001", "0.25")
    assert distinct_digits(-0.250244, -0.24999) == ("-0.25024", "-0.24999")
    assert distinct_digits(1 + 0j, 3) == ("(1+0j)", "3")


def test_numbers_have_no_exponent_where_that_is_as_short() -> None:
    assert [number(value) for value in (16783.2, 1.678e7, 0.5, 9999.4)] == ["16780", "1.678e+07", "0.5", "9999"]
