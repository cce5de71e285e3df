"""The distributions from which torch draws, as far as a sample is judged by them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# docs/screening.md
_LEVELS = (0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999)
_STANDARD_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Distribution:
    """What a sample must look like.

    All values lie in the closed interval from ``lowest`` to ``highest``. ``quantiles`` are pairs of a threshold
    and the probability of a value up to and with it. ``peak`` is the largest density, ``crowding`` bounds the
    product of a value's magnitude and its density, ``atom`` is the largest probability of a single value; ``bias`` is
    how far a sound generator's probabilities may be off.
    """

    lowest: float
    highest: float
    quantiles: tuple[tuple[float, float], ...] = ()
    peak: float = 0.0
    atom: float = 0.0
    bias: float = 0.0
    crowding: float = 0.0


def constant(value: float) -> Distribution:
    """Return the distribution of a single value."""
    return Distribution(value, value, atom=1.0)


def _continuous(
    lowest: float, highest: float, peak: float, crowding: float, quantile: Callable[[float], float]
) -> Distribution:
    pairs = tuple((quantile(level), level) for level in _LEVELS)
    finite = tuple(pair for pair in pairs if math.isfinite(pair[0]))
    return Distribution(lowest, highest, finite, peak, crowding=crowding)


def uniform(low: float, high: float) -> Distribution:
    """Return the uniform distribution; ``high`` is allowed, for rounding may reach it."""
    if low == high:
        return constant(low)
    width = high - low
    crowding = max(abs(low), abs(high)) / width
    return _continuous(low, high, 1 / width, crowding, lambda level: low + level * width)


def normal(mean: float, std: float) -> Distribution:
    """Return the normal distribution."""
    if std == 0:
        return constant(mean)
    peak = 1 / (std * math.sqrt(2 * math.pi))
    # |x| is at most |mean| + |x - mean|, and the density times the latter is largest one standard deviation away
    crowding = abs(mean) * peak + math.exp(-0.5) / math.sqrt(2 * math.pi)
    return _continuous(-math.inf, math.inf, peak, crowding, lambda level: mean + std * _STANDARD_NORMAL.inv_cdf(level))


def log_normal(mean: float, std: float) -> Distribution:
    """Return the distribution of exp(x), x normal with ``mean`` and ``std``."""
    if std == 0:
        return constant(_exp(mean))
    peak = _exp(std * std / 2 - mean) / (std * math.sqrt(2 * math.pi))
    crowding = 1 / (std * math.sqrt(2 * math.pi))
    return _continuous(0.0, math.inf, peak, crowding, lambda level: _exp(mean + std * _STANDARD_NORMAL.inv_cdf(level)))


def _exp(x: float) -> float:
    return math.exp(x) if x < 709 else math.inf


def exponential(rate: float) -> Distribution:
    """Return the exponential distribution of mean 1 / ``rate``."""
    return _continuous(0.0, math.inf, rate, math.exp(-1), lambda level: -math.log1p(-level) / rate)


def cauchy(median: float, sigma: float) -> Distribution:
    """Return the Cauchy distribution of half width ``sigma``."""
    peak = 1 / (math.pi * sigma)
    crowding = abs(median) * peak + 1 / (2 * math.pi)
    return _continuous(
        -math.inf, math.inf, peak, crowding, lambda level: median + sigma * math.tan(math.pi * (level - 0.5))
    )


def geometric(p: float) -> Distribution:
    """Return the distribution of the number of trials up to the first success, 1 at least."""
    if p == 1:
        return constant(1.0)
    log_failure = math.log1p(-p)
    trials = sorted({max(1, math.ceil(math.log1p(-level) / log_failure)) for level in _LEVELS})
    quantiles = tuple((float(k), -math.expm1(k * log_failure)) for k in trials)
    # numbers that a narrow dtype rounds to the same one: k p (1 - p)^(k - 1) is at most p + 1 / e
    return Distribution(1.0, math.inf, quantiles, atom=p, crowding=p + math.exp(-1))


def integers(low: int, high: int) -> Distribution:
    """Return the uniform distribution of the integers from ``low`` to ``high`` - 1.

    torch reduces 32 random bits, or 64 for a range that needs them, modulo the range; that bias is sound.
    """
    size = high - low
    if size == 1:
        return constant(low)
    counts = sorted({min(size, max(1, math.ceil(level * size))) for level in _LEVELS})
    quantiles = tuple((float(low + count - 1), count / size) for count in counts)
    bits = 32 if size < 1 << 32 else 64
    return Distribution(low, high - 1, quantiles, atom=2 / size, bias=min(1.0, size / (1 << bits)))
