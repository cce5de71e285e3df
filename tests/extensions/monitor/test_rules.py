"""Rules find what they are for, one value at a time as in a whole series."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.monitor.rules import (
    Exploding,
    NotFinite,
    Overflow,
    Stuck,
    Turbulence,
    Underflow,
    Vanishing,
    alarms,
    make_rule,
)

NAN, INF = math.nan, math.inf

counts = st.integers(1, 4)
factors = st.sampled_from([0.0, 1e-3, 0.5, 1.0, 2.0, 100.0])
thresholds = st.none() | factors
dtypes = st.sampled_from(["float16", "bfloat16", "float32", "float64", "float8_e5m2", "float8_e4m3fn"])
rules = st.one_of(
    st.builds(NotFinite, thresholds, st.booleans()),
    st.builds(Turbulence, factors, st.sampled_from([None, 0.99, 0.5])),
    st.builds(Exploding, factors, counts, counts),
    st.builds(Vanishing, factors, counts, counts, st.sampled_from([0.0, 1.0]), st.booleans()),
    st.builds(Stuck, counts, counts, st.sampled_from([0.0, 0.1]), st.booleans()),
    st.builds(Overflow, dtypes),
    st.builds(Underflow, dtypes),
)
# Few distinct numbers, so that values repeat, jump and sit on limits.
values = st.sampled_from(
    [0.0, -0.0, 1.0, -1.0, 2.0, 200.0, 1e-3, 1e-5, 65519.0, 65520.0, 2.0**-25, 1e306, NAN, INF, -INF]
)
series = st.lists(values | st.floats(), max_size=30)


def reported(rule, numbers):
    return [index for index, _ in alarms(rule, np.array(numbers, dtype=np.float64))]


@settings(max_examples=200, deadline=None)
@given(rules, series)
def test_a_whole_series_is_broken_where_a_detector_finds_one_of_its_values_wrong(rule, numbers):
    detector = rule.detector()
    found = [number for number in numbers if detector.feed(number) is not None]
    assert rule.is_broken(np.array(numbers, dtype=np.float64)) == bool(found)


def test_nan_and_both_infinities_are_reported():
    assert reported(NotFinite(), [1.0, NAN, 2.0, INF, -INF]) == [1, 3, 4]


def test_infinity_is_left_alone_where_that_is_asked_for():
    assert reported(NotFinite(inf=False), [INF, NAN]) == [1]


def test_a_threshold_bounds_the_magnitude():
    assert reported(NotFinite(threshold=3.0), [3.0, -3.5, 4.0]) == [1, 2]


def test_turbulence_is_above_the_mean_of_all_earlier_values():
    # Means before each value: 4, 4, 5, 5; the bounds are half above.
    assert reported(Turbulence(0.5), [4.0, 6.0, 5.0, 7.6]) == [3]


def test_where_the_mean_is_not_positive_turbulence_is_below_the_bound():
    assert reported(Turbulence(0.5), [-4.0, -5.9, -8.0, 9.0]) == [2]


def test_exponential_turbulence_is_of_magnitudes():
    # Before each value the mean is 1, 1, 0.99 + 0.014 = 1.004 and 1.00901; the bounds are half above.
    assert reported(Turbulence(0.5, decay=0.99), [1.0, -1.4, 1.505, -1.52]) == [3]


def test_a_mean_goes_on_after_nan():
    assert reported(Turbulence(0.5), [1.0, NAN, 1.0, 2.0]) == [3]


def test_a_jump_explodes():
    assert reported(Exploding(factor=100, within=20, after=10), [1.0] * 30 + [101.0, 1.0]) == [30]


def test_geometric_growth_explodes():
    growing = [1.0] * 30 + [1.3**k for k in range(1, 30)]
    assert reported(Exploding(factor=100, within=20, after=10), growing)[0] == 30 + math.ceil(math.log(100, 1.3)) - 1


def test_linear_growth_from_nothing_does_not_explode():
    assert not reported(Exploding(), [1e-3 * k for k in range(1000)])


def test_the_first_values_are_not_judged_by_each_other():
    assert not reported(Exploding(after=10), [1e-9] * 9 + [1.0] * 20)


def test_growth_from_zeros_alone_is_not_judged():
    assert not reported(Exploding(after=3), [0.0] * 10 + [1.0])


def test_a_gradient_that_dies_vanishes_once_it_has_been_dead_for_long_enough():
    assert reported(Vanishing(steps=5), [1.0] * 20 + [0.0] * 6) == [24, 25]


def test_a_spike_before_an_ordinary_value_is_no_vanishing():
    assert not reported(Vanishing(), [1.0] * 20 + [1e6] + [1.0] * 20)


def test_a_gradient_that_is_zero_now_and_then_does_not_vanish():
    assert not reported(Vanishing(), [1.0, 1.0, 0.0, 0.0, 0.0] * 20)


def test_a_gradient_that_never_was_vanishes_where_that_is_asked_for():
    assert not reported(Vanishing(), [0.0] * 20)
    assert reported(Vanishing(steps=5, from_start=True), [0.0] * 20) == [4]


def test_what_rounding_may_have_made_zero_does_not_vanish():
    small = [2e-6] * 20 + [0.0] * 10
    assert reported(Vanishing(), small)
    assert not reported(Vanishing(resolution=1e-6), small)


def test_a_parameter_that_moved_and_no_longer_does_is_stuck_and_reported_once():
    assert reported(Stuck(steps=10, after=5), [1.0 + k for k in range(6)] + [6.0] * 30) == [15]


def test_a_parameter_that_never_moved_is_stuck_only_where_it_should_have():
    frozen = [3.0] * 30
    assert not reported(Stuck(steps=10), frozen)
    assert reported(Stuck(steps=10, from_start=True), frozen) == [10]


def test_a_parameter_that_moved_too_little_to_see_is_not_stuck():
    slow = [1.0 + 1e-6 * k for k in range(10)] + [1.00001] * 20
    assert reported(Stuck(), slow)
    assert not reported(Stuck(resolution=1e-6), slow)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float8_e5m2", "float8_e4m3fn"])
def test_the_range_of_a_dtype_is_that_of_torch(dtype):
    import torch

    info = torch.finfo(getattr(torch, dtype))

    def rounded(number):
        return torch.tensor(number, dtype=torch.float64).to(torch.float32).to(getattr(torch, dtype)).double().item()

    assert not reported(Overflow(dtype), [info.max, -info.max])
    assert not reported(Underflow(dtype), [0.0, info.smallest_normal * info.eps])
    assert rounded(info.smallest_normal * info.eps / 2) == 0
    assert reported(Underflow(dtype), [info.smallest_normal * info.eps / 2]) == [0]


def test_what_rounds_to_infinity_overflows():
    import torch

    edge = 65520.0
    assert torch.tensor(edge, dtype=torch.float64).to(torch.float16).isinf()
    assert reported(Overflow("float16"), [math.nextafter(edge, 0), edge, -edge, INF]) == [1, 2]


def test_the_reason_shows_the_value_and_what_was_allowed():
    ((_, reason),) = alarms(Exploding(), np.array([2.0] * 30 + [500.0]))
    assert reason.startswith("is 500; allowed: a magnitude up to 200, 100 times the largest")


@pytest.mark.parametrize(
    ("name", "limits", "reported"),
    [
        ("exploded", {}, r"unknown rule 'exploded'; did you mean 'exploding'\?"),
        ("exploding", {"factors": 1}, r"rule exploding has no limit 'factors'; known: after, factor, within"),
        ("exploding", {"factor": "much"}, "exploding: factor is 'much'"),
        ("exploding", {"within": 0}, "exploding: within is 0"),
        ("turbulence", {}, "rule turbulence lacks the limit 'threshold': {}"),
        ("overflow", {"dtype": "float17"}, "'float17'; allowed: float64, float32"),
    ],
)
def test_a_wrong_rule_is_reported_with_what_is_allowed(name, limits, reported):
    with pytest.raises(ConfigError, match=reported):
        make_rule(name, limits)


def test_rules_have_msprobes_names_too():
    assert make_rule("AnomalyTurbulence", {"threshold": 0.5}) == Turbulence(0.5)
    assert make_rule("AnomalyNan", {}) == NotFinite()
