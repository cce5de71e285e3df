"""Tail bounds: how improbable a finding is in a healthy generator, as proven, and the verdict on it.

An exponent of s means: a healthy generator shows this, or worse, with a probability of at most 2 exp(-s).
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from msprobe_standards.verdict import Verdict, worst

# docs/screening.md: no check makes more than 500 tests, so a healthy generator fails one
# with a probability below 1e-9.
_ALARM_PER_TEST = 2e-12
LIMIT = math.log(2 / _ALARM_PER_TEST)


def held(reason: str = "") -> Verdict:
    """Return the verdict on something that is exactly as it must be."""
    return Verdict("pass", "random", reason)


def broken(reason: str, **metrics: float) -> Verdict:
    """Return the verdict on something that a healthy generator never shows."""
    return Verdict("fail", "random", reason, metrics, dict.fromkeys(metrics, 0.0), math.inf)


def unjudged(reason: str) -> Verdict:
    """Return the verdict on something of which nothing can be said."""
    return Verdict("skip", "random", reason)


def weighed(exponent: float, what: str, found: float, expected: float) -> Verdict:
    """Return the verdict on a number that may differ from what is expected, by the exponent of its tail bound."""
    metrics, limits = {what: found, "tail_bound_exponent": exponent}, {what: expected, "tail_bound_exponent": LIMIT}
    margin = exponent / LIMIT
    if exponent <= LIMIT:
        return Verdict("pass", "random", "", metrics, limits, margin)
    reason = f"the {what} is {found:.6g}, but {expected:.6g} is expected"
    return Verdict("fail", "random", reason, metrics, limits, margin)


def decided(verdicts: list[Verdict]) -> Verdict:
    """Return the worst verdict; without any, there were no elements to be wrong."""
    return worst(verdicts) or held("no elements")


def as_one(verdicts: list[Verdict]) -> list[Verdict]:
    """Return the worst of verdicts by :func:`weighed`, at the odds of one test: their number multiplies the bound."""
    tests = [verdict for verdict in verdicts if verdict.metrics]
    if not tests:
        return []
    worst_of_all = decided(tests)
    what = next(iter(worst_of_all.metrics))
    exponent = worst_of_all.metrics["tail_bound_exponent"] - math.log(len(tests))
    return [weighed(max(0.0, exponent), what, worst_of_all.metrics[what], worst_of_all.limits[what])]


def share(what: str, count: tuple[int, int], n: int, p: float, slack: float = 0.0) -> Verdict:
    """Judge how many of ``n`` independent events happened, each with a probability of ``p`` on average.

    The true count lies in the closed interval ``count``, where rounding hides it, and the probability within
    ``slack`` of ``p``. Chernoff's bound (n times the Kullback-Leibler divergence), which holds for events of
    different probabilities too (Hoeffding, 1956).
    """
    if n == 0:
        return held("no elements")
    low, high = count[0] / n, count[1] / n
    lowest, highest = max(0.0, p - slack), min(1.0, p + slack)
    if low > highest:
        exponent = n * _divergence(low, highest)
    elif high < lowest:
        exponent = n * _divergence(high, lowest)
    else:
        exponent = 0.0
    return weighed(exponent, what, (low + high) / 2, p)


def shares(what: str, count: Tensor, n: Tensor, p: Tensor | float, slack: float) -> Verdict:
    """Judge the worst of many groups as `share` does each; ``count``, ``n`` and ``p`` are float64, (groups,)."""
    used = n > 0
    count, n = count[used], n[used]
    if not len(n):
        return held("no elements")
    p = p if isinstance(p, float) else p[used]
    shown, expected = count / n, torch.as_tensor(p, dtype=torch.float64)
    nearest = torch.minimum(torch.maximum(shown, (expected - slack).clamp(min=0.0)), (expected + slack).clamp(max=1.0))
    exponents = n * (_relative_entropy(shown, nearest) + _relative_entropy(1 - shown, 1 - nearest))
    at = int(exponents.argmax())
    expected = expected.expand(shown.shape)
    return weighed(max(0.0, float(exponents[at]) - math.log(len(n))), what, float(shown[at]), float(expected[at]))


def _relative_entropy(q: Tensor, p: Tensor) -> Tensor:
    return torch.where(q > 0, torch.xlogy(q, q / p), 0.0)


def frequencies(what: str, counts: Tensor, chances: Tensor) -> Verdict:
    """Judge how often each of some words occurred, by the relative entropy to their ``chances``.

    The bound is that of Agrawal (2020), "Finite-sample concentration of the multinomial in relative entropy", theorem
    1.2. Both tensors are (words,).
    """
    n, free = int(counts.sum()), int((chances > 0).sum()) - 1
    if not n or free < 1:
        return held("no elements")
    entropy = n * float(_relative_entropy(counts / n, chances.double()).sum())
    exponent = entropy - free * (1 + math.log(entropy / free)) if entropy > free else 0.0
    return weighed(max(0.0, exponent), f"relative entropy of {what}", entropy / n, 0.0)


def bernstein(off: Tensor, variance: Tensor, reach: float) -> Tensor:
    """Return the exponents of sums that are ``off``, of independent terms of mean 0 and magnitude ``reach`` at most.

    Bernstein's inequality; ``variance`` is that of the sums.
    """
    return torch.where(off > 0, off.square() / (2 * variance + 2 * reach * off / 3), 0.0)


def at_most(what: str, count: int, n: int, p: float) -> Verdict:
    """Judge how many of ``n`` events happened, each with a probability of at most ``p`` on average (Chernoff).

    The events are independent, or the probability holds for each one given those before it.
    """
    found = count / n if n else 0.0
    return weighed(n * _divergence(found, p) if found > p else 0.0, what, found, p)


def _divergence(q: float, p: float) -> float:
    return _divergence_term(q, p) + _divergence_term(1 - q, 1 - p)


def _divergence_term(q: float, p: float) -> float:
    if q <= 0:
        return 0.0
    return math.inf if p <= 0 else q * math.log(q / p)


def _exponent(distance: float, spread: float) -> float:
    """Return ``distance / spread``: no distance is no evidence, and one without any spread is impossible."""
    if not distance:
        return 0.0
    return distance / spread if spread else math.inf


def bounded_mean(
    what: str, found: float, n: int, expected: float, variance: float, reach: float, slack: float
) -> Verdict:
    """Judge a mean of ``n`` independent values that are never further than ``reach`` from ``expected``.

    Bernstein's inequality with the known ``variance`` of one value; the found mean may be off by ``slack``. Where there
    is one possible value, ``variance`` and ``reach`` are 0 and any other mean is impossible.
    """
    off = max(0.0, abs(found - expected) - slack)
    return weighed(_exponent(n * off * off, 2 * variance + 2 * reach * off / 3), what, found, expected)


def normal_mean(found: float, n: int, slack: float) -> Verdict:
    """Judge the mean of ``n`` standard normal values (Gaussian tail bound)."""
    off = max(0.0, abs(found) - slack)
    return weighed(n * off * off / 2, "mean in standard deviations", found, 0.0)


def normal_variance(found: float, n: int, slack: float) -> Verdict:
    """Judge the mean square of ``n`` standard normal values (chi-square bounds of Laurent and Massart, 2000)."""
    above, below = n * (found - 1 - slack), n * (1 - found - slack)
    if above > 0:
        root = (math.sqrt(n + 2 * above) - math.sqrt(n)) / 2
        exponent = root * root
    else:
        exponent = _exponent(max(0.0, below) ** 2, 4 * n)
    return weighed(exponent, "variance over the expected one", found, 1.0)


def poisson_sum(found: float, expected: float, slack: float) -> Verdict:
    """Judge the sum of independent Poisson values (Chernoff); it may be off by the share ``slack``."""
    nearest = min(max(expected, found * (1 - slack)), found * (1 + slack))
    exponent = _divergence_term(nearest, expected) - nearest + expected
    return weighed(exponent, "sum", found, expected)


def repeated(n: int, largest_share: float) -> Verdict:
    """Judge that all of ``n`` values are equal, where no value has a probability above ``largest_share``."""
    exponent = -(n - 1) * math.log(min(1.0, largest_share)) if largest_share > 0 else math.inf
    verdict = weighed(exponent, "number of different values", 1.0, float(n))
    if verdict.outcome == "pass":
        return verdict
    return Verdict("fail", "random", f"all {n} values are the same", verdict.metrics, verdict.limits, verdict.margin)


@lru_cache(maxsize=256)
def small_squares(size: int, pq: float) -> tuple[Tensor, Tensor]:
    """Return rates s, and log E exp(-s D^2) of the difference D of two binomial counts of ``size`` choices.

    D has the characteristic function (1 - 2pq(1 - cos t))^size, which falls with pq. So does E exp(-s D^2), which is a
    mixture of it over normal t: Chernoff's bound of a small sum of squares holds with the smallest pq.
    """
    terms = 2 ** math.ceil(math.log2(2 * size + 1))
    angles = torch.arange(terms // 2 + 1, dtype=torch.float64) * (2 * math.pi / terms)
    chances = torch.fft.irfft(((1 - 2 * pq * (1 - angles.cos())) ** size).to(torch.complex128), terms)
    # Both signs. Rounding of the transform only adds, and behind so many standard deviations is less than it.
    reach = min(size, 64 + int(12 * math.sqrt(2 * size * pq)))
    chances = chances[: reach + 1].clamp(min=0.0) * torch.where(torch.arange(reach + 1) > 0, 2.0, 1.0)
    rates = 2.0 ** torch.arange(-2, 9, dtype=torch.float64) / max(2 * size * pq, 1.0)
    squares = torch.arange(reach + 1, dtype=torch.float64).square()
    return rates, (torch.exp(-rates[:, None] * squares) * chances).sum(1).log()
