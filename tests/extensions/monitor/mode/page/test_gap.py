"""How far apart two runs are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_msprobe.extensions.monitor.golden.series_tolerance import Twins
from pytest_msprobe.extensions.monitor.page import build
from pytest_msprobe.extensions.monitor.page.build import Binning, make_axis

STEPS = np.array([0])


def of(statistic: str, target: dict[str, float], golden: dict[str, float]) -> float:
    """Return the gap of a statistic of one step."""
    both = [{name: np.array([value]) for name, value in values.items()} for values in (target, golden)]
    return float(build.gap(Twins(STEPS, *both), statistic)[0])


def test_the_gap_of_a_mean_is_relative_to_its_tensor() -> None:
    assert of("mean", {"mean": 1e-9, "max": 2.0, "min": 0.0}, {"mean": -1e-9, "max": 2.0, "min": 0.0}) == 1e-9


def test_the_gap_of_a_share_is_relative_to_itself() -> None:
    assert of("zeros", {"zeros": 0.5, "norm": 1e-9}, {"zeros": 0.25, "norm": 1e-9}) == 0.5


@pytest.mark.parametrize(("target", "expected"), [(math.nan, math.inf), (math.inf, math.inf), (1.0, 0.0)])
def test_what_is_finite_in_one_run_only_is_as_far_as_can_be(target: float, expected: float) -> None:
    assert of("norm", {"norm": target}, {"norm": 1.0}) == expected


@given(st.lists(st.floats(min_value=0, max_value=2), min_size=2, max_size=2).map(sorted))
def test_bytes_keep_the_order_of_gaps(gaps: list[float]) -> None:
    steps = np.array([0, 1])
    smaller, greater = build.gap_bytes(Binning(make_axis(steps, 2)), steps, np.array(gaps))
    assert build.EQUAL <= smaller <= greater <= build.SCALE[1]


def test_bytes_say_what_is_no_number() -> None:
    binning = Binning(make_axis(np.arange(4), 4))
    found = build.gap_bytes(binning, np.array([0, 1, 2]), np.array([0.0, np.inf, 2.0]))
    assert found.tolist() == [build.EQUAL, build.NOT_FINITE, build.SCALE[1], build.MISSING]
