"""Samples of random numbers, and independence: they do not repeat at a distance, in a result, or between calls.

Pairs at a distance are disjoint (blocks of that length are compared with the ones behind them), so that what happens
to one pair is independent of all others, and the bounds of :mod:`tail_bound` hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch

from pytest_msprobe.engine.replay.random_apis import tail_bound
from pytest_msprobe.engine.replay.random_apis.sampled_indices import tensors

if TYPE_CHECKING:
    from torch import Tensor

    from msprobe_standards.verdict import Verdict
    from pytest_msprobe.engine.replay.random_apis.distributions import Distribution
    from pytest_msprobe.engine.replay.random_apis.sampled_indices import RandomProperty

#: Half precision kernels draw their uniform numbers from a grid as coarse as the dtype, and what they make of them
#: is off by a few steps of that grid (docs/standards-reference.md, "Random results").
GRID_STEPS = 4
# up to here float64 holds every integer
_EXACT_INTEGERS = 1 << 53

# So many pairs of each distance, and so many elements of a sample, show a generator that repeats: of 2^18 pairs a share
# of half that is off by 0.007 exceeds the bound, √(25.3 / 2^19).
_PAIRS = 2**18
_ELEMENTS = 2**20
# docs/standards-reference.md, "Random results": with its other tests, a check makes no more than 50.
_MOST_DISTANCES = 30
_POWERS = 24  # 1 to 2^23, which leave half and five rows their places


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


def distances(shape: Sequence[int]) -> list[int]:
    """Return the distances at which elements of a result are compared: powers of two, rows of any rank, and half."""
    n = math.prod(shape)
    rows = [math.prod(shape[dim:]) for dim in range(1, len(shape))]
    powers = [2**power for power in range(_POWERS)]
    sound = dict.fromkeys(distance for distance in (n // 2, *reversed(rows), *powers) if 0 < distance <= n // 2)
    return list(sound)[:_MOST_DISTANCES]


def unlike_pairs(chosen: Tensor, known: Tensor, p: Tensor | float, shape: Sequence[int], slack: float) -> list[Verdict]:
    """Judge for each distance how many of the pairs are unlike.

    ``chosen`` and ``known`` are masks of all elements, flat: which elements were chosen, each with probability ``p``,
    and of which this is known. ``slack`` is how far rounding may have moved ``p``.
    """
    if not chosen.numel():
        return []
    verdicts = []
    for distance in distances(shape):
        first, second = _pairs(chosen, distance)
        both = torch.logical_and(*_pairs(known, distance))
        unlike = int(((first != second) & both).sum())
        if isinstance(p, float):
            probability = 2 * p * (1 - p)
        else:
            one, other = _pairs(p, distance)
            each = (one * (1 - other) + other * (1 - one))[both]
            probability = float(each.mean()) if len(each) else 0.0
        what = f"share of unlike elements at a distance of {distance}"
        verdicts.append(tail_bound.share(what, (unlike, unlike), int(both.sum()), min(1.0, probability), 2 * slack))
    p = torch.as_tensor(p, dtype=torch.float64)
    return [
        *verdicts,
        correlation(torch.where(known, chosen.double() - p, 0.0), float(p.max().maximum((1 - p).max())), slack),
    ]


def correlation(deviations: Tensor, largest: float, slack: float) -> Verdict:
    """Judge the sums of products of elements at every distance, and return the verdict on the largest one.

    ``deviations`` are independent numbers of magnitude ``largest`` at most, and their means are zero but for ``slack``.
    Each product is at most ``largest`` squared, and as likely positive as negative whatever came before it: the
    inequality of Azuma and Hoeffding, once for each distance.
    """
    x = deviations[:_PAIRS]
    n = len(x)
    if n < 2 or not largest:
        return tail_bound.held()
    spectrum = torch.fft.rfft(x, 2 * n)
    # A conjugate is lazy, and within a dispatch mode it is never made.
    power = torch.view_as_real(spectrum).square().sum(-1)
    squares, sums = torch.fft.irfft(power, 2 * n)[:n].tensor_split([1])
    products = torch.arange(n - 1, 0, -1, dtype=torch.float64)
    off = (sums.abs() - products * slack * largest).clamp(min=0.0)
    exponents = off.square() / (2 * products * largest**4)
    distance = int(exponents.argmax())
    found = float(sums[distance] / products[distance] / (squares / n)) if squares > 0 else 0.0
    what = f"correlation of elements at a distance of {distance + 1}"
    return tail_bound.weighed(max(0.0, float(exponents[distance]) - math.log(n)), what, found, 0.0)


def repeats(values: Tensor, distribution: Distribution, eps: float, spread: Tensor | None) -> Iterator[Verdict]:
    """Judge how many elements of a sample equal the one at each distance, and how many equal any before them.

    ``spread`` says for each value how far rounding may have moved it; without it, equal values are the same bits.
    """
    x = values.detach().flatten().double()
    chance = most_equal(distribution, eps)
    if spread is None:
        counted = _ordinary(values).flatten()
        yield from _equal_anywhere(x[:_ELEMENTS][counted[:_ELEMENTS]], min(len(x), _ELEMENTS), chance)
    yield from _same_half(x, distribution, eps)
    for distance in distances(values.shape):
        first, second = _pairs(x, distance)
        if spread is None:
            equal = (first == second) & _pairs(counted, distance)[0]
            expected = chance
        else:
            near = 2 * _pairs(spread.detach().flatten().double(), distance)[0]
            equal = (first - second).abs() <= near
            each = chance + 2 * distribution.peak * (near + float(spread.detach().max()))
            expected = float(each.clamp(max=1.0).mean())
        what = f"share of elements that equal the one {distance} places on"
        yield tail_bound.at_most(what, int(equal.sum()), equal.numel(), expected)


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


def _judge_second_draw(output: list[Tensor], again: list[Tensor], exponent: float) -> Verdict | None:
    """Judge the results of two calls in a row, the same with a probability of at most exp(-``exponent``).

    Returns None where they differ, or may well be the same.
    """
    if exponent <= tail_bound.LIMIT or len(output) != len(again):
        return None
    same = all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(output, again, strict=True))
    reason = "a second call without seeding gives the same random numbers"
    return tail_bound.broken(reason, tail_bound_exponent=exponent) if same else None


def judge_two_draws(randomness: RandomProperty, output: Any, again: Any) -> Verdict:
    """Judge the results of two calls in a row: the first by its property, then that the second is another one."""
    verdict = randomness.check_forward(output)
    if verdict.outcome != "pass" or not isinstance(randomness, Redrawn):
        return verdict
    exponent = randomness.repeat_exponent(output)
    return _judge_second_draw(tensors(output), tensors(again), exponent) or verdict


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


def _same_half(x: Tensor, distribution: Distribution, eps: float) -> Iterator[Verdict]:
    """Judge the correlation of which elements are below about the median."""
    if distribution.quantiles:
        threshold, p = min(distribution.quantiles, key=lambda pair: abs(pair[1] - 0.5))
        slack = distribution.bias + _grid(distribution, eps)
        yield correlation((x <= threshold).double() - p, max(p, 1 - p), slack)


def _ordinary(values: Tensor) -> Tensor:
    """Return where values are neither infinite nor so small that many numbers become the same."""
    if not values.dtype.is_floating_point:
        return torch.ones_like(values, dtype=torch.bool)
    return values.isfinite() & (values.abs() >= torch.finfo(values.dtype).smallest_normal)


def _pairs(flat: Tensor, distance: int) -> tuple[Tensor, Tensor]:
    """Return the first and the second elements of disjoint pairs at a distance."""
    blocks = min(len(flat) // (2 * distance), max(1, _PAIRS // distance))
    first, second = flat[: blocks * 2 * distance].view(blocks, 2, distance)[:, :, :_PAIRS].unbind(1)
    return first.reshape(-1), second.reshape(-1)
