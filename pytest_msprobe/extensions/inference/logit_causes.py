"""Recognise how the logits of noted log probabilities were changed: by a temperature, a cut, a bias, a rounding.

Each cause is a reading of the logits (`logit_readings`) whose number is estimated from some of the tokens. A cause is
reported where its reading gives nearly all noted values to rounding and the plain reading does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from msprobe_hooks.messages import counted
from pytest_msprobe.extensions.inference import logit_readings as readings
from pytest_msprobe.extensions.inference.logit_readings import Named, ScoredTokens

# Choices: a reading explains values where the mean distance is at most this part of the plain reading's; with fewer
# tokens anything explains them.
_LEFT = 0.1
LEAST_TOKENS = 4
# Several readings that fit nearly as well are all named.
_AS_WELL = 2.0
# The most that one token counts: some values are infinite.
_FAR = 30.0
_BIASES = 3
_GOLDEN_SECTION = (math.sqrt(5) - 1) / 2
_STEPS = 50  # of golden section: to 4e-11 of a bracket
# Temperatures that programs set, for cuts of the vocabulary at a temperature.
_TEMPERATURES = tuple(step / 20 for step in range(1, 41) if step != 20)


@dataclass(frozen=True, slots=True)
class Cause:
    """A reason why noted log probabilities are not those of logits.

    Attributes:
        words: The cause with its number, as ``with temperature 1.3``; joined by or where several explain the values.
        tokens: How many tokens were looked at.
        explained: Of how many the values are explained.
        left: The greatest distance that remains, over the tokens that it explains.
        plain: The mean distance without it.
    """

    words: str
    tokens: int
    explained: int
    left: float
    plain: float

    def __str__(self) -> str:
        return (
            f"{self.words} ({self.explained} of {counted(self.tokens, 'token')} to {self.left:.1e}; without it "
            f"{self.plain:.1e} apart in the mean)"
        )


def recognized(scored: ScoredTokens, limit: Tensor) -> Cause | None:
    """Return what explains noted values, None where nothing does or the logits as they are do.

    Args:
        scored: The tokens.
        limit: How far rounding alone may move the log probability of each, shape (tokens,).
    """
    before = distance(readings.plain(scored), scored.noted)
    if len(scored) < LEAST_TOKENS or is_explained(before, limit):
        return None
    for stage in (_single, _combined):
        fitting: list[tuple[float, str, Tensor]] = []
        for words, read in stage(scored, limit):
            after = distance(read(scored), scored.noted)
            if explains(before, after, limit):
                fitting.append((float(after.mean()), words, after))
        if fitting:
            fitting.sort(key=lambda one: one[0])
            least, _, after = fitting[0]
            alike = [words for mean, words, _ in fitting if mean <= _AS_WELL * least + torch.finfo(torch.float32).eps]
            return as_cause(" or ".join(dict.fromkeys(alike)), before, after, limit)
    return None


def as_cause(words: str, before: Tensor, after: Tensor, limit: Tensor) -> Cause:
    """Return a cause with what it leaves of the distances ``before``."""
    is_within = after <= limit
    return Cause(words, len(after), int(is_within.sum()), float(after[is_within].max()), float(before.mean()))


def distance(one: Tensor, other: Tensor) -> Tensor:
    """Return how far log probabilities are apart, 0 for equal infinities and 30 at most."""
    return torch.where(one == other, 0.0, (one - other).abs()).nan_to_num(nan=_FAR, posinf=_FAR).clamp(max=_FAR)


def is_explained(apart: Tensor, limit: Tensor) -> bool:
    """Return whether nearly all distances are within their limits."""
    return readings.are_nearly_all(apart <= limit)


def explains(before: Tensor, after: Tensor, limit: Tensor) -> bool:
    """Return whether nearly all distances are within their limits, and far less is left of them than before."""
    return is_explained(after, limit) and is_nearer(before, after)


def is_nearer(before: Tensor, after: Tensor) -> bool:
    """Return whether so little is left of the distances that chance does not do it."""
    return float(after.mean()) <= _LEFT * float(before.mean())


def _single(scored: ScoredTokens, limit: Tensor) -> Iterator[Named]:
    """Yield the readings of one cause."""
    yield "raw logits, not log probabilities", readings.as_logit
    yield "read for the most probable token of each position", readings.of_most_probable
    for dtype in (torch.bfloat16, torch.float16):
        name = str(dtype).removeprefix("torch.")
        yield f"with logits rounded to {name}", partial(readings.of_rounded, dtype=dtype)
        yield f"with logits and log probabilities rounded to {name}", partial(readings.rounded, dtype=dtype)
    yield from _fitted(scored)
    yield from readings.cuts(scored, readings.descending(scored), limit, 1.0)
    yield from _columns(scored, limit)
    yield from _one_token(scored, limit)
    yield from _biases(scored, limit)


def _combined(scored: ScoredTokens, limit: Tensor) -> Iterator[Named]:
    """Yield the readings of a temperature that programs set and a cut."""
    descending = readings.descending(scored)
    for temperature in _TEMPERATURES:
        for words, read in readings.cuts(scored, descending, limit, temperature):
            yield f"with temperature {temperature:g} and {words.removeprefix('with ')}", read


def _fitted(scored: ScoredTokens) -> Iterator[Named]:
    """Yield readings with one number, at the number that fits best."""
    kinds: list[tuple[str, Callable[[ScoredTokens, float], Tensor], Sequence[float]]] = [
        ("with temperature {:.4g}", readings.with_temperature, _geometric(0.05, 20.0, 41)),
        ("with logits capped by tanh at {:.4g}", readings.with_softcap, _geometric(2.0, 200.0, 31)),
    ]
    if bool((scored.earlier >= 0).any()):
        kinds.append(("with repetition penalty {:.4g}", readings.with_repetition_penalty, _geometric(0.5, 4.0, 31)))
    if bool((scored.times > 0).any()):
        steps = [step / 8 for step in range(-16, 17)]
        kinds.append(("with presence penalty {:.4g}", readings.with_presence_penalty, steps))
        kinds.append(("with frequency penalty {:.4g}", readings.with_frequency_penalty, steps))
    for words, read, grid in kinds:
        number = _nearest(scored, read, grid)
        yield words.format(number), partial(_with, read=read, number=number)


def _with(scored: ScoredTokens, read: Callable[[ScoredTokens, float], Tensor], number: float) -> Tensor:
    return read(scored, number)


def _nearest(scored: ScoredTokens, read: Callable[[ScoredTokens, float], Tensor], grid: Sequence[float]) -> float:
    """Return the number with which a reading is nearest: by a grid, then by golden section about the best of it."""

    def mean(number: float) -> float:
        return float(distance(read(scored, number), scored.noted).mean())

    place = min(range(len(grid)), key=lambda at: mean(grid[at]))
    low, high = grid[max(place - 1, 0)], grid[min(place + 1, len(grid) - 1)]
    left, right = high - _GOLDEN_SECTION * (high - low), low + _GOLDEN_SECTION * (high - low)
    of_left, of_right = mean(left), mean(right)
    for _ in range(_STEPS):
        if of_left <= of_right:
            high, right, of_right = right, left, of_left
            left = high - _GOLDEN_SECTION * (high - low)
            of_left = mean(left)
        else:
            low, left, of_left = left, right, of_right
            right = low + _GOLDEN_SECTION * (high - low)
            of_right = mean(right)
    return (low + high) / 2


def _geometric(low: float, high: float, count: int) -> Sequence[float]:
    return [low * (high / low) ** (place / (count - 1)) for place in range(count)]


def _columns(scored: ScoredTokens, limit: Tensor) -> Iterator[Named]:
    """Yield readings over another number of columns: vocabularies are padded, as to a multiple of 64."""
    logit = readings.as_logit(scored)
    whole = torch.logsumexp(scored.logits, dim=1)
    low, high = readings.first_columns(
        torch.logcumsumexp(scored.logits, dim=1), logit - scored.noted, scored.tokens, limit
    )
    common = readings.common_range(low, high)
    if common is not None and common[0] < scored.logits.shape[1]:
        several = readings.range_in_words(*common)
        words = f"with the first {common[0]:g}{several} of the vocabulary's {scored.logits.shape[1]} columns"
        yield words, partial(readings.of_columns, columns=int(common[0]))
    more = float((torch.expm1(logit - scored.noted - whole).clamp(min=0).log() + whole).exp().median())
    if 1 <= round(more) < scored.logits.shape[1]:
        words = f"with {round(more)} more columns of logit 0, as a padded vocabulary has"
        yield words, partial(readings.with_more_columns, columns=round(more))


def _one_token(scored: ScoredTokens, limit: Tensor) -> Iterator[Named]:
    apart = (torch.log_softmax(scored.logits, dim=1) - scored.noted[:, None]).abs()
    token = int((apart <= limit[:, None]).sum(dim=0).argmax())
    if not (scored.tokens == token).all():
        yield f"read for token {token} at each position", partial(readings.of_token, token=token)


def _biases(scored: ScoredTokens, limit: Tensor) -> Iterator[Named]:
    """Yield readings with a bias of up to three tokens.

    A bias b of token j adds ``p_j (e^b - 1)`` to the sum of probabilities, by which those of all other tokens are
    divided: one column of probabilities, times one number, is what the noted values lack.
    """
    probabilities = torch.softmax(scored.logits, dim=1)
    lacking = torch.expm1((readings.plain(scored) - scored.noted).clamp(-_FAR, _FAR))
    others = probabilities.scatter(1, scored.tokens[:, None], 0.0)
    tokens: list[int] = []
    for _ in range(min(_BIASES, len(scored) // LEAST_TOKENS)):
        rows = ~torch.isin(scored.tokens, torch.tensor(tokens, dtype=torch.int64))
        left, columns = lacking[rows], others[rows]
        if tokens:
            factors = torch.linalg.lstsq(columns[:, tokens], left[:, None]).solution
            left = left - (columns[:, tokens] @ factors)[:, 0]
        squares = (left**2).sum() - torch.zeros(others.shape[1], dtype=left.dtype).index_add(
            0, scored.tokens[rows], left**2
        )
        explained = (left @ columns) ** 2 / ((columns**2).sum(dim=0) * squares)
        explained[tokens] = -1.0
        tokens.append(int(explained.nan_to_num(nan=-1.0).argmax()))
        rows = ~torch.isin(scored.tokens, torch.tensor(tokens))
        if int(rows.sum()) < len(tokens):
            return
        factors = torch.linalg.lstsq(others[rows][:, tokens], lacking[rows][:, None]).solution[:, 0]
        numbers = torch.log1p(factors.clamp(min=-1 + 1e-9)).tolist()
        biases = dict(zip(tokens, numbers, strict=True))
        words = " and ".join(
            f"{bias:.4g} of token {token}" if bias > -10 else f"below -10 of token {token}"
            for token, bias in biases.items()
        )
        read = partial(readings.with_bias, biases=biases)
        yield f"with a logit bias: {words}", read
        if is_explained(distance(read(scored), scored.noted), limit):
            return
