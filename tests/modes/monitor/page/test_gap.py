"""How far apart two runs are."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_msprobe.modes.monitor.page import gap
from pytest_msprobe.modes.monitor.page.axis import Binning, make_axis

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def of(target: float, golden: float) -> float:
    return float(gap.relative_gap(np.array([target]), np.array([golden]))[0])


@given(FINITE, FINITE)
def test_the_gap_is_relative_to_the_greater_size(target: float, golden: float) -> None:
    size = max(abs(Fraction(target)), abs(Fraction(golden)))
    exact = abs(Fraction(target) - Fraction(golden)) / size if size else Fraction(0)
    # Two divisions and a subtraction of numbers of at most 1: three roundings of float64 each at most 2.
    assert abs(Fraction(of(target, golden)) - exact) <= Fraction(3, 2**52)


@given(FINITE.filter(bool))
def test_neighbouring_numbers_are_apart(value: float) -> None:
    assert of(value, math.nextafter(value, 0)) > 0


@pytest.mark.parametrize(
    ("target", "golden", "expected"),
    [
        (math.nan, math.nan, 0),
        (math.inf, math.inf, 0),
        (math.nan, 1.0, math.inf),
        (1.0, math.inf, math.inf),
        (math.inf, -math.inf, math.inf),
        (math.nan, math.inf, math.inf),
        (0.0, -0.0, 0),
    ],
)
def test_what_is_not_finite_must_be_so_in_both_runs(target: float, golden: float, expected: float) -> None:
    assert of(target, golden) == expected


@given(st.lists(st.floats(min_value=0, max_value=2), min_size=2, max_size=2).map(sorted))
def test_bytes_keep_the_order_of_gaps(gaps: list[float]) -> None:
    steps = np.array([0, 1])
    smaller, greater = gap.gap_bytes(Binning(make_axis(steps, 2)), steps, np.array(gaps))
    assert gap.EQUAL <= smaller <= greater <= gap.SCALE[1]


def test_bytes_say_what_is_no_number() -> None:
    binning = Binning(make_axis(np.arange(4), 4))
    found = gap.gap_bytes(binning, np.array([0, 1, 2]), np.array([0.0, np.inf, 2.0]))
    assert found.tolist() == [gap.EQUAL, gap.NOT_FINITE, gap.SCALE[1], gap.MISSING]
