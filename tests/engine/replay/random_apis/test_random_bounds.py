"""The bounds behind the verdicts on random results never claim less than the true probability."""

from __future__ import annotations

import math

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_msprobe.engine.replay.random_apis import distributions, tail_bound


def exact_tail(n: int, count: int, p: float) -> float:
    """Return the probability of ``count`` or what is further from the mean, on its side of it."""
    side = range(count, n + 1) if count >= n * p else range(count + 1)
    return sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in side)


@given(st.integers(1, 60), st.data(), st.floats(0.01, 0.99))
def test_the_exponent_at_a_share_bounds_the_binomial_tail(n: int, data: st.DataObject, p: float) -> None:
    count = data.draw(st.integers(0, n))
    found = tail_bound.share("share", (count, count), n, p).metrics["tail_bound_exponent"]
    assert exact_tail(n, count, p) <= math.exp(-found) * (1 + 1e-9)


@pytest.mark.parametrize("count", [30, 60, 90, 100, 110, 150, 200])
def test_the_exponent_at_a_sum_bounds_the_poisson_tail(count: int) -> None:
    rate = 100
    found = tail_bound.poisson_sum(count, rate, 0.0).metrics["tail_bound_exponent"]
    upper = mpmath.gammainc(count, 0, rate, regularized=True)
    tail = upper if count >= rate else 1 - mpmath.gammainc(count + 1, 0, rate, regularized=True)
    assert float(tail) <= math.exp(-found)


@pytest.mark.parametrize("n", [1, 5, 100])
@pytest.mark.parametrize("mean_square", [0.01, 0.3, 0.9, 1.1, 2.0, 8.0])
def test_the_exponent_at_a_variance_bounds_the_chi_square_tail(n: int, mean_square: float) -> None:
    found = tail_bound.normal_variance(mean_square, n, 0.0).metrics["tail_bound_exponent"]
    below = mpmath.gammainc(mpmath.mpf(n) / 2, 0, mpmath.mpf(n * mean_square) / 2, regularized=True)
    tail = below if mean_square < 1 else 1 - below
    assert float(tail) <= math.exp(-found) * (1 + 1e-9)


@pytest.mark.parametrize("n", [1, 5, 100])
@pytest.mark.parametrize("mean", [0.0, 0.2, 1.0, -2.0])
def test_the_exponent_at_a_mean_bounds_the_normal_tail(n: int, mean: float) -> None:
    found = tail_bound.normal_mean(mean, n, 0.0).metrics["tail_bound_exponent"]
    assert math.erfc(abs(mean) * math.sqrt(n / 2)) / 2 <= math.exp(-found)


def test_the_probability_of_a_false_alarm_is_below_one_in_a_thousand_million() -> None:
    tests_per_check = 500
    assert tests_per_check * 2 * math.exp(-tail_bound.LIMIT) <= 1.001e-9


def test_impossible_counts_have_no_limit() -> None:
    assert tail_bound.share("share", (1, 1), 10, 0.0).outcome == "fail"
    assert tail_bound.share("share", (9, 9), 10, 1.0).outcome == "fail"
    assert tail_bound.share("share", (0, 0), 10, 0.0).outcome == "pass"


def test_rounding_and_slack_are_given_the_benefit_of_the_doubt() -> None:
    assert tail_bound.share("share", (400, 600), 1000, 0.5).metrics["tail_bound_exponent"] == 0
    assert tail_bound.share("share", (520, 520), 1000, 0.5, 0.03).metrics["tail_bound_exponent"] == 0


@pytest.mark.parametrize(
    ("distribution", "cumulative"),
    [
        (distributions.uniform(-1, 3), lambda t: (t + 1) / 4),
        (distributions.normal(2, 3), lambda t: mpmath.ncdf(t, 2, 3)),
        (distributions.log_normal(1, 2), lambda t: mpmath.ncdf(mpmath.log(t), 1, 2)),
        (distributions.exponential(2.5), lambda t: 1 - mpmath.exp(-2.5 * t)),
        (distributions.cauchy(1, 2), lambda t: mpmath.atan((t - 1) / 2) / mpmath.pi + 0.5),
        (distributions.geometric(0.2), lambda t: mpmath.nsum(lambda k: 0.2 * 0.8 ** (k - 1), [1, t])),
        (distributions.integers(3, 12), lambda t: (t - 2) / 9),
    ],
)
def test_quantiles_have_their_probabilities(distribution: distributions.Distribution, cumulative: object) -> None:
    assert len(distribution.quantiles) >= 5
    for threshold, probability in distribution.quantiles:
        assert float(cumulative(threshold)) == pytest.approx(probability, rel=1e-9)  # type: ignore[operator]


@pytest.mark.parametrize("size", [10, 3 << 30, (1 << 31) + 1, 3 << 62])
def test_the_allowed_bias_covers_the_reduction_of_random_bits(size: int) -> None:
    bits = 1 << (32 if size < 1 << 32 else 64)
    whole, rest = divmod(bits, size)
    distribution = distributions.integers(0, size)
    for threshold, probability in distribution.quantiles:
        count = int(probability * size)
        drawn = (count * whole + min(rest, count)) / bits
        assert abs(drawn - probability) <= distribution.bias
        assert threshold == pytest.approx(count, abs=max(2, count * 1e-9))


def test_a_mean_of_one_possible_value_passes_where_it_is_that_value_and_fails_where_it_is_another() -> None:
    def judged(found: float) -> tuple[str, float]:
        verdict = tail_bound.bounded_mean("mean", found, n=10, expected=1.0, variance=0.0, reach=0.0, slack=0.0)
        return verdict.outcome, verdict.metrics["tail_bound_exponent"]

    assert judged(1.0) == ("pass", 0.0)
    assert judged(0.5) == ("fail", math.inf)


def test_a_variance_of_no_values_is_no_evidence() -> None:
    assert tail_bound.normal_variance(0.0, 0, 0.0).metrics["tail_bound_exponent"] == 0
