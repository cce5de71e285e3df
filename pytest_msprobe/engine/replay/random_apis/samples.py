"""Samples of random numbers, judged by their distribution, their digits and what repeats; several draws of one call."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch

from pytest_msprobe.engine.replay.random_apis import tail_bound
from pytest_msprobe.engine.replay.random_apis.independence import (
    Choices,
    choices,
    judged,
    share_of,
    successive,
    together,
)
from pytest_msprobe.engine.replay.random_apis.random_property import tensors

if TYPE_CHECKING:
    from torch import Tensor

    from msprobe_standards.verdict import Verdict
    from pytest_msprobe.engine.replay.random_apis.distributions import Distribution
    from pytest_msprobe.engine.replay.random_apis.random_property import RandomProperty

#: Half precision kernels draw their uniform numbers from a grid as coarse as the dtype, and what they make of them
#: is off by a few steps of that grid (docs/screening.md).
GRID_STEPS = 4
# Draws that are judged together: as many as make so many elements, more where a verdict is near a limit.
_SMALL, _DOUBTED, _MOST_DRAWS = 2**13, 2**18, 16
# The share of its limit that one of a few hundred bounds rarely reaches in a healthy draw.
_DOUBTFUL = 0.15
# up to here float64 holds every integer
_EXACT_INTEGERS = 1 << 53

# So many elements of a sample show a generator that repeats.
_ELEMENTS = 2**20
_ORDERED = 2**18
# Numbers of 16 binary digits: what a generator of 16 bits makes, and formats of half precision.
_SHORT = 2.0**16


def rounding(dtype: torch.dtype) -> float:
    """Return the distance from 1 to the next number of a float dtype; 0 for integers."""
    return torch.finfo(dtype).eps if dtype.is_floating_point else 0.0


def against(
    values: Tensor, distribution: Distribution, *, eps: float | None = None, spread: Tensor | None = None
) -> list[Verdict]:
    """Judge real ``values`` by the shares below quantiles, the range, and that they are not all the same.

    ``eps`` is the relative precision in which the values were computed, by default their dtype's; ``spread``
    says for each value how far rounding may have moved it, where that is more.
    """
    if values.numel() == 0:
        return []
    eps = rounding(values.dtype) if eps is None else eps
    x = values.flatten().double()
    if x.isnan().any():
        return [tail_bound.broken("NaN among the random values", nans=float(x.isnan().sum()))]
    moved = x.abs() * eps
    if max(abs(distribution.lowest), abs(distribution.highest)) > _EXACT_INTEGERS and not eps:
        moved = x.abs() * 2**-52
    width = distribution.highest - distribution.lowest
    if eps and width < inf:
        # uniform numbers stand on a grid whose step is that of numbers around the width, not around each of them
        moved = moved + eps * width if distribution.peak else moved
    if spread is not None:
        spread = spread.flatten().double()
        moved = torch.maximum(moved, spread)
    verdicts = _in_range(x, distribution, eps, spread)
    verdicts += _not_stuck(x, moved, distribution, eps)
    slack = distribution.bias + GRID_STEPS * eps
    lower, upper = x + moved, x - moved
    for threshold, probability in distribution.quantiles:
        count = int((lower <= threshold).sum()), int((upper <= threshold).sum())
        what = f"share of values up to {threshold:.6g}"
        verdicts.append(tail_bound.share(what, count, x.numel(), probability, slack))
    return verdicts


def _in_range(x: Tensor, distribution: Distribution, eps: float, spread: Tensor | None) -> list[Verdict]:
    # an end of the range that the dtype does not have is rounded to its neighbour
    beyond = [eps / 2 * abs(end) if abs(end) < inf else 0.0 for end in (distribution.lowest, distribution.highest)]
    low, high = (x, x) if spread is None else (x + spread, x - spread)
    outside = ~(low >= distribution.lowest - beyond[0]) | ~(high <= distribution.highest + beyond[1])
    count = int(outside.sum())
    if not count:
        return []
    example = float(x[outside][0])
    span = f"[{distribution.lowest:.6g}, {distribution.highest:.6g}]"
    return [
        tail_bound.broken(f"{count} of {x.numel()} values are outside of {span}, such as {example:.6g}", outside=count)
    ]


def _not_stuck(x: Tensor, moved: Tensor, distribution: Distribution, eps: float) -> list[Verdict]:
    if x.numel() < 2 or not bool((x == x[0]).all()):
        return []
    around = float(moved[0]) if x[0].isfinite() else 0.0
    largest = distribution.atom + distribution.bias + 2 * distribution.peak * around + GRID_STEPS * eps
    return [tail_bound.repeated(x.numel(), largest)]


def normal_moments(standardized: Tensor, eps: float, offset: float = 0.0) -> list[Verdict]:
    """Judge mean and variance of (x - mean) / std; ``offset`` is how far rounding may have moved one of them."""
    n = standardized.numel()
    finite = bool(standardized.isfinite().all())
    if n == 0 or not finite:
        return []
    slack = GRID_STEPS * eps + offset
    square = float(standardized.square().mean())
    return [
        tail_bound.normal_mean(float(standardized.mean()), n, slack),
        tail_bound.normal_variance(square, n, 2 * slack + slack * slack),
    ]


def uniform_moments(unit: Tensor, eps: float, offset: float = 0.0) -> list[Verdict]:
    """Judge mean and variance of (x - low) / (high - low); ``offset`` as for :func:`normal_moments`."""
    n = unit.numel()
    if n == 0 or not unit.isfinite().all():
        return []
    slack = GRID_STEPS * eps + offset
    variance = float((unit - 0.5).square().mean())
    mean = float(unit.mean())
    return [
        tail_bound.bounded_mean("mean as a share of the range", mean, n, 1 / 2, 1 / 12, 1 / 2, slack),
        tail_bound.bounded_mean(
            "variance over the squared range", variance, n, 1 / 12, 1 / 180, 1 / 6, slack + slack * slack
        ),
    ]


def halves(values: Tensor, distribution: Distribution, eps: float, moved: float = 0.0) -> list[Choices]:
    """Return which values are below about the median, outside about the quartiles and, of integers, odd.

    ``moved`` is how far rounding may have moved a value, beyond what its own precision ``eps`` does.
    """
    if len(distribution.quantiles) < 2:
        return []
    x, slack = values.detach().double(), distribution.bias + _grid(distribution, eps) + 2 * distribution.peak * moved
    low, middle, high = (
        min(distribution.quantiles, key=lambda pair: abs(pair[1] - level)) for level in (0.25, 0.5, 0.75)
    )
    streams = [choices(x <= middle[0], middle[1], slack, what="lower")]
    if low[0] < high[0]:
        streams.append(choices((x <= low[0]) | (x > high[0]), low[1] + 1 - high[1], 2 * slack, what="outer"))
    span = distribution.highest - distribution.lowest + 1
    if not distribution.peak and distribution.atom and 2 < span <= _EXACT_INTEGERS and not eps:
        streams.append(choices((x - distribution.lowest) % 2 == 1, span // 2 / span, distribution.bias, what="odd"))
    return streams


def sample(values: Tensor, distribution: Distribution) -> Iterator[Verdict]:
    """Judge what repeats in a sample of one distribution, the independence of its values, and their last digits."""
    eps, chance = rounding(values.dtype), most_equal(distribution, rounding(values.dtype))
    flat = values.detach().flatten()[:_ELEMENTS].double()
    yield from _equal_anywhere(flat[_ordinary(values).flatten()[:_ELEMENTS]], len(flat), chance)
    for bits in halves(values, distribution, eps):
        yield from judged(bits)
    yield _orders(values.flatten()[:_ORDERED])
    if values.dtype in (torch.float32, torch.float64) and distribution.peak:
        yield from _digits(values, distribution, eps)


def _orders(x: Tensor) -> Verdict:
    """Judge in which of 24 orders four neighbours are: all are as likely, whatever the distribution is."""
    ordered, places = x[: len(x) // 4 * 4].detach().view(-1, 4).sort(1)
    digits = torch.tensor([64, 16, 4, 1])
    codes = (places[(ordered[:, 1:] != ordered[:, :-1]).all(1)] * digits).sum(1)
    orders = (torch.tensor(list(itertools.permutations(range(4)))) * digits).sum(1)
    counts = torch.bincount(codes, minlength=256)[orders]
    return tail_bound.frequencies("orders of four neighbours", counts, torch.full((24,), 1 / 24))


def _digits(values: Tensor, distribution: Distribution, eps: float) -> Iterator[Verdict]:
    """Judge how many values have no more than 16 binary digits, or lie on a grid of 2^16 steps.

    Of numbers on a grid of g > 16 binary digits, 2^16 (1 + (g - 16) / 2) have no more than 16: one in nine at 21
    digits, which is four steps of float32. Around a value x a grid of 16 digits has a share of 2^-7 of the numbers, to
    which the density that changes between two steps adds |x| times the density times 2^-15.
    """
    x = values.detach()[_ordinary(values)].double()[:_ELEMENTS]
    short = x.frexp().mantissa * _SHORT
    chance = 1 / 8 + GRID_STEPS * distribution.crowding / _SHORT
    count = int((short == short.round()).sum())
    yield tail_bound.at_most("share of values of 16 binary digits at most", count, len(x), min(1.0, chance))
    width = distribution.highest - distribution.lowest
    if 0 < width < inf:
        steps = (x - distribution.lowest) / width * _SHORT
        near = GRID_STEPS * eps * _SHORT * (1 + max(abs(distribution.lowest), abs(distribution.highest)) / width)
        count = int(((steps - steps.round()).abs() <= near).sum())
        chance = min(1.0, 2 * near + GRID_STEPS * eps * _SHORT)
        yield tail_bound.at_most("share of values on a grid of 2^16 steps", count, len(x), chance)


def most_equal(distribution: Distribution, eps: float) -> float:
    """Return a bound of the probability that a draw, rounded to the relative precision ``eps``, is a given number."""
    return min(1.0, distribution.atom + distribution.bias + _grid(distribution, eps))


def _grid(distribution: Distribution, eps: float) -> float:
    return eps * (2 * distribution.crowding + GRID_STEPS)


@runtime_checkable
class Redrawn(Protocol):
    """A property of results of which two calls in a row give the same with a small probability only."""

    def repeat_exponent(self, output: Any) -> float:
        """Return the exponent of a bound of the probability that the next call gives this result too."""

    def choices(self, output: Any) -> Sequence[Choices]:
        """Return the independent choices that a well-formed result shows."""


def judge_draws(randomness: RandomProperty, outputs: Iterator[Any]) -> Verdict:
    """Judge the results of calls in a row, of which only as many are made as the verdict needs.

    The first is judged by its property. The second must be another one, and is no copy of the first that was moved.
    Further ones follow where the first two are small or near a limit; all are then judged together.
    """
    first = next(outputs)
    verdict = randomness.check_forward(first)
    if verdict.outcome != "pass" or not isinstance(randomness, Redrawn):
        return verdict
    draws = [first, next(outputs)]
    exponent = randomness.repeat_exponent(first)
    if same := _judge_second_draw(tensors(first), tensors(draws[1]), exponent):
        return same
    streams = [randomness.choices(output) for output in draws]
    series = list(zip(*streams, strict=True))
    verdicts = [verdict, *(moved for one, other in series for moved in successive(one, other))]
    verdict = tail_bound.decided(verdicts)
    size = max((one.picked.numel() for one, _ in series), default=0)
    if verdict.outcome == "fail" or not size:
        return verdict
    share = tail_bound.decided([share_of(together(pair)) for pair in series])
    doubtful = max(verdict.margin, share.margin) > _DOUBTFUL
    number = min(_MOST_DRAWS, -(-(_DOUBTED if doubtful else _SMALL) // size))
    if number < 2:
        return tail_bound.decided([verdict, share])
    streams += [randomness.choices(next(outputs)) for _ in range(number - len(draws))]
    pooled = tail_bound.decided([test for draw in zip(*streams, strict=True) for test in judged(together(draw))])
    if pooled.outcome == "fail":
        return replace(pooled, reason=f"{pooled.reason}, in {len(streams)} draws, which are dimension 0")
    return tail_bound.decided([verdict, pooled])


def _judge_second_draw(output: list[Tensor], again: list[Tensor], exponent: float) -> Verdict | None:
    """Judge the results of two calls in a row, the same with a probability of at most exp(-``exponent``).

    Returns None where they differ in values only, or may well be the same.
    """
    if [tensor.shape for tensor in output] != [tensor.shape for tensor in again]:
        return tail_bound.broken("a second call gives results of other shapes")
    if exponent <= tail_bound.LIMIT or not all(map(torch.equal, output, again)):
        return None
    reason = "a second call without seeding gives the same random numbers"
    return tail_bound.broken(reason, tail_bound_exponent=exponent)


def sample_exponent(values: Tensor, distribution: Distribution, eps: float) -> float:
    """Return the exponent for a sample of one distribution, as :meth:`Redrawn.repeat_exponent` does."""
    chance = most_equal(distribution, eps)
    return -math.log(chance) * int(_ordinary(values).sum()) if chance else math.inf


def choice_exponent(p: Tensor) -> float:
    """Return the exponent for independent choices, each made with its own probability ``p``."""
    p = p.detach().double()
    return float(-(p.square() + (1 - p).square()).log().sum())


def _equal_anywhere(counted: Tensor, n: int, chance: float) -> Iterator[Verdict]:
    # Where earlier numbers take up half of all, that one of them comes again says nothing.
    expected = chance * (n - 1) / 2
    if n > 1 and expected < 0.5:
        in_order = counted.sort().values
        equal = int((in_order[1:] == in_order[:-1]).sum())
        yield tail_bound.at_most("share of elements that equal an earlier one", equal, n, expected)


def _ordinary(values: Tensor) -> Tensor:
    """Return where values are neither infinite nor so small that many numbers become the same."""
    if not values.dtype.is_floating_point:
        return torch.ones_like(values, dtype=torch.bool)
    return values.isfinite() & (values.abs() >= torch.finfo(values.dtype).smallest_normal)
