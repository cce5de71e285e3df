"""How far a statistic of one run is from the same of another."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_msprobe.extensions.monitor.golden.series_tolerance import (
    are_scaled,
    decimals,
    quantum,
    relative_difference,
    scale,
)

numbers = st.floats(-1e6, 1e6, allow_subnormal=False).map(lambda value: value if abs(value) > 1e-6 else 1.0)


@given(target=numbers, golden=numbers, factor=st.integers(-20, 20).map(lambda power: 2.0**power))
def test_a_difference_is_the_same_in_any_unit(target: float, golden: float, factor: float) -> None:
    a, b = np.array([target]), np.array([golden])
    size = np.maximum(abs(a), abs(b))

    difference = relative_difference(a, b, size)

    assert difference == relative_difference(a * factor, b * factor, size * factor)
    assert difference == relative_difference(b, a, size)
    assert (difference == 0) == (target == golden)


@pytest.mark.parametrize(
    ("target", "golden", "expected"),
    [
        (np.nan, np.nan, 0.0),
        (np.inf, np.inf, 0.0),
        (np.inf, -np.inf, np.inf),
        (np.nan, 1.0, np.inf),
        (1.0, np.inf, np.inf),
        (3.0, 2.0, 0.25),
    ],
)
def test_what_is_not_finite_equals_its_like_only(target: float, golden: float, expected: float) -> None:
    assert relative_difference(np.array([target]), np.array([golden]), np.array([4.0])) == expected


def test_what_differs_from_a_tensor_of_zeros_is_infinitely_far() -> None:
    assert relative_difference(np.array([1e-30]), np.array([0.0]), np.array([0.0])) == np.inf


def test_a_mean_near_zero_is_relative_to_the_tensors_largest_magnitude() -> None:
    values = {"mean": np.array([1e-9]), "min": np.array([-3.0]), "max": np.array([2.0]), "norm": np.array([40.0])}

    assert scale("mean", values) == 3.0
    assert scale("max", values) == 3.0
    assert scale("norm", values) == 40.0


def test_a_mean_without_extremes_is_relative_to_the_norm_and_alone_to_itself() -> None:
    assert scale("mean", {"mean": np.array([1e-9]), "norm": np.array([40.0])}) == 40.0
    assert scale("mean", {"mean": np.array([-2.0])}) == 2.0


@given(values=st.lists(st.floats(-100, 100), min_size=1), digits=st.integers(1, 12))
def test_rounded_values_have_no_more_decimals_than_they_were_rounded_to(values: list[float], digits: int) -> None:
    assert decimals(np.round(np.array(values), digits)) <= max(digits, 1)


def test_the_quantum_is_that_of_the_rounding_and_nothing_where_values_are_whole() -> None:
    values = np.random.default_rng(0).normal(size=40)

    assert quantum(decimals(np.round(values, 6))) == pytest.approx(1e-6)
    assert quantum(decimals(values)) == 0.0


def statistics_of(tensor: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "norm": np.array([np.linalg.norm(tensor)]),
        "min": np.array([tensor.min()]),
        "max": np.array([tensor.max()]),
    }


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), factor=st.floats(0.5, 2).filter(lambda factor: abs(factor - 1) > 1e-3))
def test_a_tensor_times_a_factor_is_scaled_and_one_with_other_elements_is_not(seed: int, factor: float) -> None:
    random = np.random.default_rng(seed)
    tensor, other = random.normal(size=1000), random.normal(size=1000)

    assert are_scaled(statistics_of(factor * tensor * (1 + 1e-7 * other)), statistics_of(tensor)).all()
    changed = np.where(random.random(1000) < 0.01, factor * other, tensor)
    assert not are_scaled(statistics_of(changed), statistics_of(tensor)).any()


@pytest.mark.parametrize("tensor", [[3.0], [-2.0, 5.0], [0.0, 0.0, 1.0]])
def test_few_elements_show_nothing_of_a_factor(tensor: list[float]) -> None:
    assert not are_scaled(statistics_of(2 * np.array(tensor)), statistics_of(np.array(tensor))).any()
