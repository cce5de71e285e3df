"""Differences of statistics, against arithmetic done here."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe_hooks.dump.values import Value
from pytest_msprobe.modes.compare.measure.call_values import measure_statistics, scaled_error
from pytest_msprobe.modes.compare.rows import STATISTICS_METRICS

INF, NAN = math.inf, math.nan
NUMBERS = st.floats(-1e30, 1e30, allow_subnormal=False)


def value(*statistics: float | bool | None) -> Value:
    return Value("x", "torch.Tensor", "torch.float32", (4,), False, statistics)  # type: ignore[arg-type]


def test_differences_are_target_less_golden() -> None:
    metrics = measure_statistics(value(3.0, -1.0, 0.5, 4.0), value(2.0, -2.0, 0.25, 5.0))
    assert set(metrics) == set(STATISTICS_METRICS)
    assert [metrics[f"{name}_diff"] for name in ("max", "min", "mean", "norm")] == [1.0, 1.0, 0.25, -1.0]
    assert [metrics[f"{name}_rel_diff"] for name in ("max", "min", "mean", "norm")] == [0.5, 0.5, 1.0, 0.2]


@pytest.mark.parametrize(
    ("target", "golden", "difference", "relative"),
    [
        (NAN, NAN, 0.0, 0.0),
        (INF, INF, 0.0, 0.0),
        (INF, -INF, INF, INF),
        (-INF, INF, -INF, INF),
        (1.0, NAN, INF, INF),
        (1e-30, 0.0, 1e-30, INF),
        (0.0, 0.0, 0.0, 0.0),
        (1.0 + 2**-40, 1.0, 2**-40, 2**-40),
        (255, 0, 255.0, INF),
        (2, 3, -1.0, 1 / 3),
        (True, False, 1.0, INF),
    ],
)
def test_special_numbers(target: float, golden: float, difference: float, relative: float) -> None:
    metrics = measure_statistics(value(target, 0, 0, 0), value(golden, 0, 0, 0))
    assert (metrics["max_diff"], metrics["max_rel_diff"]) == (difference, relative)


@pytest.mark.parametrize(
    ("target", "golden", "mismatch"),
    [((5, 0, 0), (1, 0, 0), 4), ((1, 2, 0), (2, 1, 0), 1), ((1, 0, 0), (1, 0, 0), 0), ((1, 0, 3), None, 0)],
)
def test_more_nan_on_one_side_is_infinitely_wrong(
    target: tuple[int, int, int], golden: tuple[int, int, int] | None, mismatch: int
) -> None:
    ours, theirs = (msgspec.structs.replace(value(NAN, NAN, NAN, NAN), nonfinite=counts) for counts in (target, golden))
    assert measure_statistics(ours, theirs).get("nonfinite_mismatch", 0) == mismatch
    assert scaled_error(ours, theirs) == (INF if mismatch else 0.0)


def test_what_a_side_lacks_is_absent() -> None:
    metrics = measure_statistics(value(3, 0, None, None), value(2, 0, None, 1.0))
    assert set(metrics) == {"max_diff", "min_diff", "max_rel_diff", "min_rel_diff"}


def test_a_mean_near_zero_makes_no_small_difference_large() -> None:
    assert scaled_error(value(1.0, -1.0, 2e-9, 2.0), value(1.0, -1.0, 1e-9, 2.0)) == pytest.approx(1e-9)


def test_a_number_in_place_of_nan_is_infinitely_wrong() -> None:
    assert scaled_error(value(1.0, 0.0, 0.5, 1.0), value(NAN, NAN, NAN, NAN)) == INF


def test_something_in_place_of_zeros_is_as_wrong_as_can_be() -> None:
    assert scaled_error(value(1e-30, 0.0, 0.0, 1e-30), value(0.0, 0.0, 0.0, 0.0)) == 1.0


@given(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS))
def test_the_scaled_error_is_symmetric_and_zero_only_for_equals(
    ours: tuple[float, ...], theirs: tuple[float, ...]
) -> None:
    error = scaled_error(value(*ours), value(*theirs))
    assert error == scaled_error(value(*theirs), value(*ours))
    assert (error == 0) == (ours == theirs)


@given(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), st.integers(-60, 60))
def test_the_scaled_error_has_no_unit(ours: tuple[float, ...], exponent: int) -> None:
    golden = (1.0, -2.0, 0.25, 3.0)
    scale = 2.0**exponent
    plain = scaled_error(value(*ours), value(*golden))
    scaled = scaled_error(value(*(x * scale for x in ours)), value(*(x * scale for x in golden)))
    assert scaled == pytest.approx(plain)
