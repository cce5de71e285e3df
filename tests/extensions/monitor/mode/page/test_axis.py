"""Binned series keep what a reader must see."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_msprobe.extensions.monitor.page.build import Binning, make_axis

STEPS = st.sets(st.integers(0, 10_000), min_size=1, max_size=60).map(lambda steps: np.array(sorted(steps)))


@st.composite
def series(draw: st.DrawFn) -> Any:
    steps = draw(STEPS)
    values = draw(st.lists(st.floats(width=32), min_size=len(steps), max_size=len(steps)))
    return steps, np.array(values)


def members(axis: Any, steps: Any, values: Any) -> list[list[float]]:
    """Sort values into bins, one by one."""
    ends = [*axis.starts[1:], math.inf]
    return [
        [value for step, value in zip(steps, values, strict=True) if start <= step < end]
        for start, end in zip(axis.starts, ends, strict=True)
    ]


@given(series(), st.integers(1, 40))
def test_each_bin_has_its_least_and_its_greatest_value(found: Any, most: int) -> None:
    steps, values = found
    axis = make_axis(steps, most)
    spans = Binning(axis).envelope(steps, values)
    for low, high, inside in zip(spans.low, spans.high, members(axis, steps, values), strict=True):
        if any(math.isnan(value) for value in inside):
            assert math.isnan(low)
            assert math.isnan(high)
        else:
            assert (low, high) == (min(inside), max(inside))


@given(STEPS, st.integers(1, 40))
def test_bins_hold_as_many_watched_steps_as_each_other(steps: Any, most: int) -> None:
    axis = make_axis(steps, most)
    counts = [len(inside) for inside in members(axis, steps, steps)]
    assert len(counts) == min(most, len(steps))
    assert max(counts) - min(counts) <= 1


def test_a_bin_without_values_says_so() -> None:
    axis = make_axis(np.array([0, 10, 20]), 3)
    spans = Binning(axis).envelope(np.array([0, 25]), np.array([1.0, 2.0]))
    assert spans.low.tolist() == [1.0, math.inf, 2.0]
    assert spans.high.tolist() == [1.0, -math.inf, 2.0]


@pytest.mark.parametrize("value", [1e300, -1e300])
def test_a_value_beyond_float32_stays_finite(value: float) -> None:
    spans = Binning(make_axis(np.array([0]), 1)).envelope(np.array([0]), np.array([value]))
    assert math.copysign(1, spans.low[0]) == math.copysign(1, value)
    assert np.isfinite(spans.low[0])


@given(series(), st.integers(1, 40))
def test_the_greatest_of_each_bin_is_found(found: Any, most: int) -> None:
    steps, values = found
    values = np.nan_to_num(values)
    axis = make_axis(steps, most)
    assert Binning(axis).greatest(steps, values).tolist() == [max(inside) for inside in members(axis, steps, values)]


def test_series_of_other_steps_are_binned_by_their_own() -> None:
    binning = Binning(make_axis(np.array([0, 10]), 2))
    for steps, expected in (([0, 1, 10], [2.0, 3.0]), ([0, 10, 11], [1.0, 3.0]), ([0, 1, 10], [2.0, 3.0])):
        assert binning.greatest(np.array(steps), np.array([1.0, 2.0, 3.0])).tolist() == expected
