"""How far apart two honest runs may be."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_msprobe.extensions.monitor.golden.series_tolerance import (
    CANCELLATION,
    GROWTH,
    Pool,
    before,
    cancellation_floor,
    rounding_floor,
    so_far,
    tolerance,
)

differences = st.lists(st.floats(0, 10) | st.just(math.inf), min_size=1, max_size=30).map(np.array)


@given(seen=differences)
def test_a_level_is_the_largest_finite_difference_before(seen: np.ndarray) -> None:
    expected = [max([0.0, *(each for each in seen[:at] if math.isfinite(each))]) for at in range(len(seen))]

    assert before(so_far(seen)).tolist() == expected


@given(seen=differences, more=st.floats(0, 10), floor=st.floats(0, 1))
def test_a_tolerance_never_narrows_with_steps_or_with_what_was_seen(
    seen: np.ndarray, more: float, floor: float
) -> None:
    level = before(so_far(seen))
    allowed = tolerance(floor, level)

    assert np.all(np.diff(allowed) >= 0)
    assert np.all(allowed >= floor)
    assert np.all(tolerance(floor, level, level + more) >= allowed)


@given(level=st.floats(1e-12, 1))
def test_what_grows_by_no_more_than_the_honest_growth_is_allowed(level: float) -> None:
    grown = level * GROWTH ** np.arange(4)

    assert np.all(grown[1:] <= tolerance(0.0, before(so_far(grown)))[1:] * (1 + 1e-12))


def test_half_of_the_digits_may_go_and_few_roundings_where_the_growth_is_learnt() -> None:
    assert rounding_floor(2.0**-24, is_learnt=False) == 2.0**-12
    assert rounding_floor(2.0**-24, is_learnt=True) == 2.0**-19
    assert rounding_floor(2.0**-8, is_learnt=False) == 2.0**-3


def test_a_gradient_that_cancels_is_off_by_roundings_of_the_largest() -> None:
    floor = cancellation_floor(2.0**-24, np.array([1.0, 1.0, 0.0]), np.array([1.0, 2.0**-24, 0.0]))

    assert floor.tolist() == [CANCELLATION * 2.0**-24, CANCELLATION, 0.0]


@given(st.lists(st.floats(0, 4, allow_subnormal=False), min_size=1, max_size=40))
def test_a_pools_median_is_the_median_rounded_up_to_a_power_of_two(values: list[float]) -> None:
    pool = Pool(1)
    for value in values:
        pool.add(np.array([0]), np.array([value]))

    lower = sorted(values)[(len(values) - 1) // 2]
    median = pool.median()[0]

    assert lower <= median or median == 0.0
    assert median <= max(2 * lower, 2.0**-55)


def test_the_median_is_that_of_any_number_of_series() -> None:
    pool = Pool(1)
    step = np.zeros(1, np.intp)
    for difference, count in ((0.0, 2**16 + 2), (0.25, 3)):
        for _ in range(count):
            pool.add(step, np.array([difference]))
    assert pool.median() == 0.0


def test_a_pool_without_series_at_a_step_has_level_zero_there() -> None:
    pool = Pool(3)
    pool.add(np.array([1]), np.array([0.5]))

    assert pool.median().tolist() == pytest.approx([0.0, 0.5, 0.0])
