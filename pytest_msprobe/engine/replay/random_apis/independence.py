"""Independence of random choices: tests of one result, or of several draws of one call together.

The tests follow TestU01's SmallCrush (L'Ecuyer and Simard, 2007) and PractRand as far as one result can answer them:
shares at each place, weights of blocks, pairs, correlations at every distance and in every mirror, words, products of
three elements, linear complexity. Each has a proven bound, and a test that looks at many places multiplies its bound
by their number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from msprobe_standards.verdict import Verdict
from pytest_msprobe.engine.replay.random_apis import tail_bound
from pytest_msprobe.engine.replay.random_apis.tail_bound import bernstein, small_squares, weighed

# So many pairs of each distance show a generator that repeats: of 2^18 pairs a share of half that is off by 0.007
# exceeds the bound, √(28.3 / 2^19). Mirrors, the next draw, and products of more elements take fewer for their
# transforms.
_PAIRS = 2**18
_MIRRORED = 2**16
_PRODUCTS = 2**14
# docs/screening.md: with its other tests, a check makes no more than 500.
_MOST_DISTANCES = 30
_LINEAR = 2**11  # bits of a loop in Python, which takes a millisecond
# Lanes of vector units and threads of a block; blocks of a tile and of a core.
_LANES = (8, 128, 2048)
_BLOCKS = (64, 1024, 2**14)
_WIDTHS = (2, 3, 4, 5, 8)  # of words
_SEVERAL = (4, 16)  # elements of a vector, which the tail of a row may lack
_STEPS = (1, 2, 3, 4)  # from the first to the second of three elements
_HEAVIEST = 2**14  # elements of a group whose weights have a distribution that is computed


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """Independent choices, made with probability ``p`` each; ``slack`` is how far rounding may have moved it.

    ``picked`` is bool, of any shape but (); ``p`` is one number or float64 of that shape, and ``legible`` says of which
    elements the choice can be read, None for all. ``what`` is what chosen elements are called.
    """

    picked: Tensor
    p: float | Tensor
    slack: float = 0.0
    legible: Tensor | None = None
    what: str = "chosen"

    @property
    def is_plain(self) -> bool:
        """Return whether all choices are known and have one probability that leaves a choice."""
        return isinstance(self.p, float) and self.legible is None and 0 < self.p < 1

    @property
    def flat(self) -> Choices:
        """Return the choices in one dimension."""
        p = self.p if isinstance(self.p, float) else self.p.flatten()
        legible = None if self.legible is None else self.legible.flatten()
        return replace(self, picked=self.picked.flatten(), p=p, legible=legible)

    def first(self, n: int) -> Choices:
        """Return the first ``n`` of flat choices."""
        p = self.p if isinstance(self.p, float) else self.p[:n]
        return replace(self, picked=self.picked[:n], p=p, legible=None if self.legible is None else self.legible[:n])

    @property
    def deviations(self) -> Tensor:
        """Return how far each choice is from its probability, 0 where it is not known."""
        off = self.picked.double() - self.p
        return off if self.legible is None else torch.where(self.legible, off, 0.0)

    @property
    def variances(self) -> Tensor:
        """Return what bounds the mean square of each deviation, for any probability that the slack allows."""
        p = torch.as_tensor(self.p, dtype=torch.float64)
        nearest = p + (0.5 - p).clamp(-self.slack, self.slack)
        value = (nearest * (1 - nearest) + self.slack**2).expand(self.picked.shape)
        return value if self.legible is None else torch.where(self.legible, value, 0.0)

    @property
    def largest(self) -> float:
        """Return the largest magnitude that a deviation may have."""
        p = torch.as_tensor(self.p, dtype=torch.float64)
        return float(torch.maximum(p, 1 - p).max())


def choices(
    picked: Tensor, p: Tensor | float, slack: float = 0.0, legible: Tensor | None = None, *, what: str = "chosen"
) -> Choices:
    """Return choices in their plainest form; ``p`` may be any tensor that is broadcast to them."""
    picked = picked.reshape(-1) if picked.dim() == 0 else picked
    legible = None if legible is None or bool(legible.all()) else legible.reshape(picked.shape)
    if isinstance(p, Tensor):
        p = p.detach().double().broadcast_to(picked.shape)
        if p.numel() and bool((p == p.flatten()[0]).all()):
            p = float(p.flatten()[0])
    return Choices(picked, p, slack, legible, what)


def together(draws: Sequence[Choices]) -> Choices:
    """Return the choices of several draws of one call, with a dimension of draws in front."""
    one = draws[0]
    knowns = [torch.ones_like(draw.picked) if draw.legible is None else draw.legible for draw in draws]
    slack = max(draw.slack for draw in draws)
    return choices(torch.stack([draw.picked for draw in draws]), one.p, slack, torch.stack(knowns), what=one.what)


def judged(drawn: Choices) -> list[Verdict]:
    """Return the verdicts of all tests on ``drawn``; none without elements.

    The tests whose reasons say most come first, and those behind a failure are left out.
    """
    verdicts: list[Verdict] = []
    for tests in (_pairs, _places, _correlations, _in_order) if drawn.picked.numel() else ():
        if all(verdict.outcome == "pass" for verdict in verdicts):
            verdicts += tests(drawn)
    return verdicts


def share_of(drawn: Choices) -> Verdict:
    """Judge how many choices were made."""
    legible = slice(None) if drawn.legible is None else drawn.legible
    picked, p = drawn.picked[legible], drawn.p if isinstance(drawn.p, float) else drawn.p[legible].mean()
    count = int(picked.sum())
    return tail_bound.share(f"share of {drawn.what} elements", (count, count), picked.numel(), float(p), drawn.slack)


def _places(drawn: Choices) -> list[Verdict]:
    """Judge the share of choices in each row, column, lane, block and diagonal, and how even those shares are."""
    # Up to so many elements float32 counts exactly.
    x = drawn.picked.to(torch.float32 if drawn.picked.numel() <= 2**24 else torch.float64)
    legible = torch.ones((), dtype=x.dtype).expand(x.shape) if drawn.legible is None else drawn.legible.to(x.dtype)
    worst, even = list[Verdict](), list[Verdict]()
    for name, (total, size) in _groupings(drawn.picked.shape).items():
        count = total(x if drawn.legible is None else x * legible).double()
        sizes = total(legible).double() if drawn.legible is not None or size is None else torch.full_like(count, size)
        expected = drawn.p if isinstance(drawn.p, float) else total(drawn.p * legible) / sizes.clamp(min=1.0)
        what = f"share of {drawn.what} elements in the worst {name}"
        worst.append(tail_bound.shares(what, count, sizes, expected, drawn.slack))
        if drawn.is_plain and size is not None:
            even += _evenness(name, count, size, drawn)
    return [*tail_bound.as_one(worst), *tail_bound.as_one(even)]


def _groupings(shape: Sequence[int]) -> dict[str, tuple[Callable[[Tensor], Tensor], int | None]]:
    """Return what sums the elements of each group, and the number of these, None where that differs.

    The keys are names of a group. Elements behind the last whole block or lane are left out.
    """
    n, last = math.prod(shape), shape[-1]
    result: dict[str, tuple[Callable[[Tensor], Tensor], int | None]] = {}

    def rows(width: int, t: Tensor) -> Tensor:
        return t.flatten()[: n // width * width].view(-1, width).sum(1)

    def columns(width: int, t: Tensor) -> Tensor:
        return t.flatten()[: n // width * width].view(-1, width).sum(0)

    widths = [math.prod(shape[dim:]) for dim in range(1, len(shape))]
    for width in [*widths, *_BLOCKS]:
        if 1 < width <= n // 2:
            result[f"row of {width} elements"] = partial(rows, width), width
    for width in [*widths, *_LANES]:
        if 1 < width <= n // 2:
            result[f"place in rows of {width} elements"] = partial(columns, width), n // width

    def tails(width: int, t: Tensor) -> Tensor:
        return columns(last, t)[last % width :].view(-1, width).sum(1)

    for width in [width for width in _SEVERAL if 2 * width <= last <= n // 2]:
        result[f"group of {width} places of the last dimension"] = partial(tails, width), n // last * width
    for dim in [dim for dim in range(1, len(shape) - 1) if shape[dim] > 1]:
        others = tuple(value for value in range(len(shape)) if value != dim)
        result[f"place along dimension {dim}"] = partial(torch.sum, dim=others), n // shape[dim]
    if len(shape) > 1 and min(shape[-2:]) > 1:
        result["diagonal"] = _diagonals, None
        result["diagonal from the right"] = lambda t: _diagonals(t.flip(-1)), None
    return result


def _diagonals(t: Tensor) -> Tensor:
    """Return the sums of all matrices along each diagonal."""
    matrix = t if t.dim() == 2 else t.flatten(0, -3).sum(0)
    height, width = matrix.shape
    # Rows that are one element longer than they are apart in memory lean by one element each.
    padded = torch.nn.functional.pad(matrix, (0, height)).flatten()[: height * (width + height - 1)]
    return padded.view(height, width + height - 1).sum(0)


def _evenness(name: str, counts: Tensor, size: int, drawn: Choices) -> Iterator[Verdict]:
    """Judge the squared differences of the counts of neighbouring groups: neither too even nor too uneven.

    The difference of two binomial counts is subgaussian with the factors of Kearns and Saul (1998), so that the sum of
    squares has the bound of a chi-square number (Laurent and Massart, 2000, proof of lemma 1).
    """
    groups = len(counts) // 2
    if groups < 2 or size > _HEAVIEST:
        return
    assert isinstance(drawn.p, float)
    total = float((counts[: 2 * groups : 2] - counts[1 : 2 * groups : 2]).square().sum())
    low, high = max(drawn.p - drawn.slack, 0.0), min(drawn.p + drawn.slack, 1.0)
    rates, logarithms = small_squares(size, min(low * (1 - low), high * (1 - high)))
    even = float((-rates * total - groups * logarithms).max())
    nearest = min(max(0.5, low), high)
    proxy = 0.25 if nearest == 0.5 else (1 - 2 * nearest) / (2 * math.log((1 - nearest) / nearest))
    excess = max(1.0, total / (groups * 2 * size * proxy))
    uneven = groups / 2 * (excess - 1 - math.log(excess))
    what = f"mean squared difference of {drawn.what} elements from each {name} to the next"
    yield weighed(max(0.0, even, uneven), what, total / groups, 2 * size * drawn.p * (1 - drawn.p))


def distances(shape: Sequence[int]) -> list[int]:
    """Return the distances at which elements are compared: powers of two, rows of any rank, and halves of them all."""
    n = math.prod(shape)
    rows = [math.prod(shape[dim:]) for dim in range(1, len(shape))]
    candidates = (n // 2, *reversed(rows), *(row // 2 for row in rows), *(2**power for power in range(24)))
    return list(dict.fromkeys(distance for distance in candidates if 0 < distance <= n // 2))[:_MOST_DISTANCES]


def at_distance(flat: Tensor, distance: int) -> tuple[Tensor, Tensor]:
    """Return the first and the second elements of disjoint pairs at a distance."""
    blocks = min(len(flat) // (2 * distance), max(1, _PAIRS // distance))
    first, second = flat[: blocks * 2 * distance].view(blocks, 2, distance)[:, :, :_PAIRS].unbind(1)
    return first.reshape(-1), second.reshape(-1)


def _pairs(drawn: Choices) -> list[Verdict]:
    """Judge how many were chosen, and disjoint pairs: how many are unlike, and of how many both were chosen."""
    flat, unlike, both = drawn.flat, list[Verdict](), list[Verdict]()
    for distance in distances(drawn.picked.shape):
        first, second = at_distance(flat.picked, distance)
        legible = None if flat.legible is None else torch.logical_and(*at_distance(flat.legible, distance))
        ps = (flat.p, flat.p) if isinstance(flat.p, float) else at_distance(flat.p, distance)
        one, other = (torch.as_tensor(p, dtype=torch.float64).expand(first.shape) for p in ps)
        n = len(first) if legible is None else int(legible.sum())
        for verdicts, result, chance, what in (
            (unlike, first ^ second, one + other - 2 * one * other, f"unlike elements at a distance of {distance}"),
            (both, first & second, one * other, f"elements at a distance of {distance} that are both {flat.what}"),
        ):
            count = int((result if legible is None else result & legible).sum())
            expected = float((chance if legible is None else chance[legible]).mean()) if n else 0.0
            slack = 2 * flat.slack + flat.slack**2
            verdicts.append(tail_bound.share(f"share of {what}", (count, count), n, min(expected, 1.0), slack))
    return [share_of(flat), *unlike, *tail_bound.as_one(both)]


def _correlations(drawn: Choices) -> Iterator[Verdict]:
    """Judge the sums of products at every distance, and in every mirror of the whole and of its rows."""
    flat = drawn.flat.first(_PAIRS)
    n = len(flat.picked)
    if n < 2:
        return
    spectrum = torch.fft.rfft(flat.deviations, 2 * n)
    # A conjugate is lazy, and within a dispatch mode it is never made.
    sums = torch.fft.irfft(torch.view_as_real(spectrum).square().sum(-1), 2 * n)[1:n]
    pairs = torch.arange(n - 1, 0, -1, dtype=torch.float64)
    variance = pairs * float(flat.variances[0]) ** 2
    if not flat.is_plain:
        power = torch.view_as_real(torch.fft.rfft(flat.variances, 2 * n)).square().sum(-1)
        variance = torch.fft.irfft(power, 2 * n)[1:n].clamp(min=0.0)
    reach = flat.largest**2
    off = (sums.abs() - pairs * flat.slack * flat.largest).clamp(min=0.0)
    # Pairs at one distance make chains, and every other link of a chain is independent: half of Bernstein's exponent
    # (Janson, 2004). They are a martingale too: Azuma's and Hoeffding's inequality.
    exponents = torch.maximum(bernstein(off, variance, reach) / 2, off.square() / (2 * pairs * reach**2))
    yield _worst("elements at a distance of", 1, exponents, sums / (variance * pairs).clamp(min=1e-300).sqrt())
    yield from _mirrors(flat.first(_MIRRORED), 1)
    for dim in range(1, len(drawn.picked.shape)):
        width = math.prod(drawn.picked.shape[dim:])
        rows = min(_MIRRORED, n) // width
        if width > 2 and rows > 1:
            yield from _mirrors(flat.first(rows * width), rows)


def _mirrors(flat: Choices, rows: int) -> Iterator[Verdict]:
    """Judge rows against their own mirrors, whose middles are at one place in all of them: pairs are disjoint."""
    x = flat.deviations.view(rows, -1)
    width = x.shape[1]

    def folded(values: Tensor) -> Tensor:
        """Return the sums of products of the pairs around each middle."""
        spectrum = torch.fft.rfft(values, 2 * width)
        products: Tensor = torch.fft.irfft((spectrum * spectrum).sum(0), 2 * width)[: 2 * width - 1]
        products[::2] -= values.square().sum(0)
        return products[1:-1] / 2

    sums = folded(x)
    middles = torch.arange(1, 2 * width - 2)
    pairs = rows * ((torch.minimum(middles, 2 * width - 2 - middles) + 1) // 2).double()
    variance = folded(flat.variances.view(rows, -1)).clamp(min=0.0)
    off = (sums.abs() - pairs * flat.slack * flat.largest).clamp(min=0.0)
    exponents = bernstein(off, variance, flat.largest**2)
    what = f"elements in rows of {width} mirrored at half of"
    yield _worst(what, 1, exponents, sums / (variance * pairs).clamp(min=1e-300).sqrt())


def _worst(what: str, first: int, exponents: Tensor, correlations: Tensor) -> Verdict:
    """Return the verdict on the largest of ``exponents``, of things that are numbered from ``first``."""
    worst = int(exponents.argmax())
    exponent = max(0.0, float(exponents[worst]) - math.log(len(exponents)))
    return weighed(exponent, f"correlation of {what} {worst + first}", float(correlations[worst]), 0.0)


def successive(first: Choices, second: Choices) -> Iterator[Verdict]:
    """Judge two draws of one call: the second is not the first moved by any distance.

    Elements of two draws make disjoint pairs, so that Bernstein's inequality holds for their products.
    """
    one, other = first.flat.first(_MIRRORED), second.flat.first(_MIRRORED)
    n = len(one.picked)
    if n < 2:
        return

    def products(a: Tensor, b: Tensor) -> Tensor:
        result: Tensor = torch.fft.irfft(torch.fft.rfft(a.flip(0), 2 * n) * torch.fft.rfft(b, 2 * n), 2 * n)
        return result.narrow(0, 0, 2 * n - 1)

    pairs = (n - torch.arange(1 - n, n).abs()).double()
    sums, variance = products(one.deviations, other.deviations), products(one.variances, other.variances)
    off = (sums.abs() - pairs * one.slack * one.largest).clamp(min=0.0)
    exponents = bernstein(off, variance.clamp(min=0.0), one.largest * other.largest)
    correlations = sums / (variance * pairs).clamp(min=1e-300).sqrt()
    yield _worst("elements of one call and of the next, moved by", 1 - n, exponents, correlations)


def _in_order(drawn: Choices) -> Iterator[Verdict]:
    """Judge choices that are all of one probability by their order: words, products of three, linear complexity."""
    flat = drawn.flat
    if isinstance(flat.p, float) and 0 < flat.p < 1:
        legible = flat if flat.legible is None else replace(flat, picked=flat.picked[flat.legible], legible=None)
        yield from _words(legible.picked[:_PAIRS].double(), flat.p, flat.slack)
        yield from _products(legible.first(_PRODUCTS), drawn.picked.shape[-1])
        yield from _linear(legible.picked[:_LINEAR].tolist(), max(flat.p, 1 - flat.p) + flat.slack)


def _words(bits: Tensor, p: float, slack: float) -> Iterator[Verdict]:
    """Judge how often each word of some bits occurs (the poker test)."""
    for width in _WIDTHS:
        words = bits[: len(bits) // width * width].view(-1, width)
        # Of the probabilities that slack allows, the one by which what was found is least surprising.
        likely = min(max(float(words.mean()), p - slack), p + slack) if len(words) else 0.0
        if 0 < likely < 1:
            result = torch.bincount((words @ 2.0 ** torch.arange(width).double()).long(), minlength=2**width)
            ones = ((torch.arange(2**width)[:, None] >> torch.arange(width)) & 1).sum(1)
            chances = likely**ones * (1 - likely) ** (width - ones)
            yield tail_bound.frequencies(f"words of {width} bits", result, chances)


def _products(flat: Choices, row: int) -> Iterator[Verdict]:
    """Judge products of three elements: a xor of two others shows in no pair.

    The last element has a mean of zero whatever the others are: Azuma's and Hoeffding's inequality. Each product meets
    six others, so that seven classes of them are independent: Bernstein's exponent by seven (Janson, 2004).
    """
    x, n = flat.deviations, len(flat.picked)
    steps = [step for step in dict.fromkeys((*_STEPS, row)) if 4 * step < n]
    if not steps:
        return
    y = torch.stack([torch.nn.functional.pad(x[step:] * x[:-step], (0, step)) for step in steps])
    spectrum = torch.fft.rfft(y.flip(-1), 2 * n) * torch.fft.rfft(x, 2 * n)
    sums = torch.fft.irfft(spectrum, 2 * n)[:, n - 1 : 2 * n - 1]
    sums[torch.arange(n) <= torch.tensor(steps)[:, None]] = 0.0
    terms, spread, reach = torch.arange(n, 0, -1).double(), float(flat.variances[0]), flat.largest
    off = (sums.abs() - terms * flat.slack * reach**2).clamp(min=0.0)
    exponents = torch.maximum(bernstein(off, terms * spread**3, reach**3) / 7, off.square() / (2 * terms * reach**6))
    step, distance = divmod(int(exponents.argmax()), n)
    exponent = max(0.0, float(exponents[step, distance]) - math.log(exponents.numel()))
    what = f"correlation of elements with those {steps[step]} and {distance} behind"
    yield weighed(exponent, what, float(sums[step, distance] / (terms[distance] * spread**1.5)), 0.0)


def _linear(bits: Sequence[bool], largest: float) -> Iterator[Verdict]:
    """Judge the linear complexity of bits: at most 4^c sequences have one of c (Rueppel, 1986)."""
    most = len(bits) * -math.log(min(1.0, largest))
    if most > tail_bound.LIMIT:
        complexity = linear_complexity(bits)
        what = f"linear complexity of the first {len(bits)} bits"
        yield weighed(max(0.0, most - complexity * math.log(4)), what, complexity, len(bits) / 2)


def linear_complexity(bits: Sequence[bool]) -> int:
    """Return the length of the shortest shift register that makes the bits (Berlekamp and Massey)."""
    connection, former, length, shift, window = 1, 1, 0, 1, 0
    for i, bit in enumerate(bits):
        window = window << 1 | bit
        if not (connection & window).bit_count() & 1:
            shift += 1
            continue
        longer = connection ^ former << shift
        if 2 * length <= i:
            length, former, shift = i + 1 - length, connection, 0
        connection, shift = longer, shift + 1
    return length
