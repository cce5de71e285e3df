"""Recognise why log probabilities are not those that logits give: as with a temperature, top-p, or one token late.

Each cause is a reading of the logits (`logit_readings`) whose number is estimated from some of the tokens. A cause is
reported where its reading gives nearly all noted values to rounding and the plain reading does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial, reduce

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from msprobe_hooks.dump.names import coarser
from msprobe_hooks.errors import DumpError
from msprobe_hooks.messages import counted, listed
from pytest_msprobe.extensions.inference import logit_readings as readings
from pytest_msprobe.extensions.inference.log_probabilities import by_logits, scored_tokens
from pytest_msprobe.extensions.inference.logit_readings import Named, ScoredTokens
from pytest_msprobe.extensions.inference.recorded_weights import UNIT_ROUNDOFF
from pytest_msprobe.extensions.inference.run_values import LOGITS, RunValues
from pytest_msprobe.extensions.inference.token_errors import Numbers
from pytest_msprobe.extensions.inference.token_layout import Integers, UnalignedError
from pytest_msprobe.extensions.inference.token_pairs import SIDES, SideName, TokenPairs

# Log probabilities of the same logits differ by roundings of their dtype, and by a sum over the vocabulary: by 3e-5
# over 151 936 tokens in float32.
_ROUNDINGS = 8.0
_SUMMED = 1e-3
# A choice: more than one in so many is no chance. What changes them, as a temperature or a shift, changes most.
_OTHER_TOKENS = 10
_PROCESSED = ": processed against raw"
# Choices: a reading explains values where the mean distance is at most this part of the plain reading's; with fewer
# tokens anything explains them.
_LEFT = 0.1
LEAST_TOKENS = 4
# Several readings that fit nearly as well are all named.
_AS_WELL = 2.0
# The most that one token counts: some values are infinite.
_FAR = 30.0
_BIASES = 3
_FARTHEST = 64  # tokens that values are shifted by
_SHOWN = 4
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


@dataclass(frozen=True, slots=True)
class NotedValues:
    """Noted log probabilities, and those that the tokens should have.

    Attributes:
        noted: float64, shape (tokens,).
        reference: The log probability that each should have.
        limit: How far rounding alone may move each.
        request: The number of each token's request.
        position: Its position.
        names: The names of the requests.
    """

    noted: Numbers
    reference: Numbers
    limit: Numbers
    request: Integers
    position: Integers
    names: Sequence[str]

    def at(self, own: Integers, shift: int) -> tuple[Tensor, Tensor]:
        """Return how far values of one request are from the reference so many tokens before each, and the limits."""
        _, late, source = np.intersect1d(self.position[own], self.position[own] + shift, return_indices=True)
        noted, reference = self.noted[own[late]], self.reference[own[source]]
        return distance(torch.from_numpy(reference), torch.from_numpy(noted)), torch.from_numpy(self.limit[own[source]])


@dataclass(frozen=True, slots=True)
class Finding:
    """Log probabilities of a run that are not those of ``basis``, and what explains them; ``line`` says it."""

    side: SideName
    basis: str
    cause: Cause | None
    line: str

    @property
    def is_processed(self) -> bool:
        """Return whether the values are those of logits that were changed, as sampling does."""
        return self.cause is not None and self.cause.words.startswith("with ")


@dataclass(frozen=True, slots=True)
class _Basis:
    """A run with logits: its own, or of the other run, against which noted values are held."""

    words: str
    run: RunValues
    places: Integers
    logprobs: Numbers
    dtype: str


def found_causes(target: RunValues, golden: RunValues, pairs: TokenPairs) -> Sequence[Finding]:
    """Return how the log probabilities that each run noted differ from those of logits, or the target's if none did.

    They are held against the run's own logits, else against those of the other run, else against what that one noted.
    """
    dtypes = [run.dtype(name) for run in (target, golden) for name in (LOGITS, "norm") if run.has(name)]
    coarsest = reduce(coarser, filter(None, dtypes), "float32")
    bases = []
    for side, run, places in ((0, target, pairs.target), (1, golden, pairs.golden)):
        # Logits that cannot be read are said with the log probabilities.
        with suppress(UnalignedError, DumpError):
            logprobs = by_logits(run, places, pairs)
            bases.append((side, _Basis(f"the {SIDES[side]}'s logits", run, places, logprobs, coarsest)))
    noting = [side for side in (0, 1) if not np.isnan(pairs.logprobs[:, side]).all()]
    if not noting and len(bases) == 2:
        finding = _finding(
            SIDES[0], "the log probabilities by the target's logits", bases[0][1].logprobs, bases[1][1], pairs
        )
        return [finding] if finding is not None and finding.cause is not None else []
    findings: list[Finding | None] = []
    plain: list[SideName] = []
    for side in noting:
        noted, words = pairs.logprobs[:, side], f"the log probabilities that the {SIDES[side]} noted"
        own = [basis for of, basis in bases if of == side and _count(noted, basis) >= LEAST_TOKENS]
        other = [basis for of, basis in bases if of != side and _count(noted, basis) >= LEAST_TOKENS]
        if own:
            dtype = own[0].run.dtype(LOGITS) or "float32"
            basis = replace(own[0], words="its own logits", dtype=dtype)
            finding = _finding(SIDES[side], words, noted, basis, pairs) or _unexplained(SIDES[side], noted, basis)
            plain += [] if finding is not None else [SIDES[side]]
            findings.append(finding)
        elif other:
            findings.append(_finding(SIDES[side], words, noted, other[0], pairs))
        elif side == 0 and len(noting) == 2:
            findings.append(_of_both_noted(pairs, coarsest))
    return _joined([finding for finding in findings if finding is not None], plain)


def _joined(findings: Sequence[Finding], plain: Sequence[SideName]) -> Sequence[Finding]:
    """Return findings, with one line where both runs have the same cause, and which run noted ``plain`` values."""
    if plain:
        also = f"; those of the {plain[0]} are of its logits as they are"
        return [replace(one, line=one.line + also + _PROCESSED * one.is_processed) for one in findings]
    words = [finding.cause.words for finding in findings if finding.cause is not None]
    if len(words) == 2 and words[0] == words[1] and findings[0].is_processed:
        line = f"both runs noted log probabilities of processed logits, {words[0]}"
        return [replace(findings[0], line=line), replace(findings[1], line="")]
    return findings


def _finding(side: SideName, words: str, noted: Numbers, basis: _Basis, pairs: TokenPairs) -> Finding | None:
    is_comparable = ~np.isnan(noted + basis.logprobs)
    values = _values(noted, basis.logprobs, is_comparable, basis.dtype, pairs)
    cause = recognized_by_values(values)
    if cause is None and not _is_plain(values):
        with suppress(UnalignedError, DumpError):
            cause = _by_other_rows(noted, basis, pairs) or _by_logits(noted, basis, pairs)
    if cause is None:
        return None
    return Finding(side, basis.words, cause, f"{words} are those of {basis.words} as {cause}")


def _by_logits(noted: Numbers, basis: _Basis, pairs: TokenPairs) -> Cause | None:
    scored = scored_tokens(basis.run, basis.places, pairs, noted)
    if scored is None:
        return None
    return recognized(scored, torch.from_numpy(_limit(readings.plain(scored).numpy(), basis.dtype)))


def _by_other_rows(noted: Numbers, basis: _Basis, pairs: TokenPairs) -> Cause | None:
    """Return whether each value is by the logits of the token itself, as where labels are not shifted."""
    reference = by_logits(basis.run, basis.places, pairs, is_shifted=False)
    both = ~np.isnan(noted + basis.logprobs)
    values = _values(noted, reference, both & ~np.isnan(reference), basis.dtype, pairs)
    if len(values.noted) < max(LEAST_TOKENS, both.sum() / 2) or not _is_plain(values):
        return None
    before = distance(torch.from_numpy(basis.logprobs[both]), torch.from_numpy(noted[both]))
    after = distance(torch.from_numpy(values.reference), torch.from_numpy(values.noted))
    words = "read one row late: by the logits of each token, not by those of the token before it"
    return as_cause(words, before, after, torch.from_numpy(values.limit))


def _of_both_noted(pairs: TokenPairs, dtype: str) -> Finding | None:
    """Return how the target's noted values differ from the golden run's, where neither has logits."""
    noted, reference = pairs.logprobs.T
    values = _values(noted, reference, ~np.isnan(noted + reference), dtype, pairs)
    cause = recognized_by_values(values)
    if cause is None:
        return None
    line = f"the log probabilities that the target noted are those that the golden run noted, as {cause}"
    return Finding(SIDES[0], "the values that the golden run noted", cause, line)


def _unexplained(side: SideName, noted: Numbers, basis: _Basis) -> Finding | None:
    """Return that noted values are not those of the run's own logits, where no single cause explains them."""
    comparable = ~np.isnan(noted + basis.logprobs)
    apart = np.abs(noted[comparable] - basis.logprobs[comparable])
    # NaN, as of two infinities, is no difference.
    others = int((apart > _limit(basis.logprobs[comparable], basis.dtype)).sum())
    if others * _OTHER_TOKENS <= len(apart):
        return None
    line = (
        f"the log probabilities that the {side} noted are not those of its own logits ({others} of "
        f"{counted(len(apart), 'token')}, median difference {np.nanmedian(apart):.2e}), and none of the known causes "
        "explains them: temperature, cuts, penalties, a logit bias, rounding, a shift"
    )
    return Finding(side, basis.words, None, line)


def _count(noted: Numbers, basis: _Basis) -> int:
    return int((~np.isnan(noted + basis.logprobs)).sum())


def _limit(logprobs: Numbers, dtype: str) -> Numbers:
    return _SUMMED + _ROUNDINGS * UNIT_ROUNDOFF[dtype] * np.maximum(np.abs(logprobs), 1)


def _values(noted: Numbers, reference: Numbers, which: NDArray[np.bool_], dtype: str, pairs: TokenPairs) -> NotedValues:
    limit = _limit(reference[which], dtype)
    return NotedValues(
        noted[which], reference[which], limit, pairs.request[which], pairs.position[which], pairs.requests
    )


def _is_plain(values: NotedValues) -> bool:
    apart = distance(torch.from_numpy(values.reference), torch.from_numpy(values.noted))
    return is_explained(apart, torch.from_numpy(values.limit))


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
            if _explains(before, after, limit):
                fitting.append((float(after.mean()), words, after))
        if fitting:
            fitting.sort(key=lambda one: one[0])
            least, _, after = fitting[0]
            alike = [words for mean, words, _ in fitting if mean <= _AS_WELL * least + torch.finfo(torch.float32).eps]
            return as_cause(" or ".join(dict.fromkeys(alike)), before, after, limit)
    return None


def recognized_by_values(values: NotedValues) -> Cause | None:
    """Return what explains noted values where only log probabilities of the same tokens are known, None as above."""
    noted, reference, limit = (torch.from_numpy(one) for one in (values.noted, values.reference, values.limit))
    before = distance(reference, noted)
    if len(noted) < LEAST_TOKENS or is_explained(before, limit):
        return None
    for words, changed in (
        ("losses, with the sign changed", -reference),
        ("probabilities, not their logarithms", reference.exp()),
        ("logarithms to base 2", reference / math.log(2)),
        ("logarithms to base 10", reference / math.log(10)),
        ("rounded to bfloat16", reference.bfloat16().double()),
        ("rounded to float16", reference.half().double()),
    ):
        after = distance(changed, noted)
        if _explains(before, after, limit):
            return as_cause(words, before, after, limit)
    return _shifted(values, before)


def _shifted(values: NotedValues, before: Tensor) -> Cause | None:
    """Return by how many tokens values are noted late or early: all by as many, or those of each request."""
    requests = [np.flatnonzero(values.request == request) for request in np.unique(values.request)]
    shifts = [shift for shift in range(-_FARTHEST, _FARTHEST + 1) if shift]
    fitting: list[tuple[float, int, Tensor, Tensor]] = []
    for shift in shifts:
        apart, limit = (torch.cat(parts) for parts in zip(*(values.at(own, shift) for own in requests), strict=True))
        if len(apart) >= max(LEAST_TOKENS, len(before) / 2) and is_explained(apart, limit):
            fitting.append((float(apart.mean()), shift, apart, limit))
    if fitting:
        _, shift, apart, limit = min(fitting, key=lambda one: one[:2])
        return as_cause(f"noted {_late(shift)}", before, apart, limit) if _is_nearer(before, apart) else None
    return _padded(values, requests, before)


def _padded(values: NotedValues, requests: Sequence[Integers], before: Tensor) -> Cause | None:
    """Return a shift of each request by its own number of tokens, as positions that count padding have it."""
    words: list[str] = []
    distances: list[tuple[Tensor, Tensor]] = []
    for own in requests:
        if len(own) < LEAST_TOKENS:
            continue
        fitting = []
        for shift in range(-_FARTHEST, _FARTHEST + 1):
            apart, limit = values.at(own, shift)
            if len(apart) >= max(LEAST_TOKENS - 1, len(own) / 2) and bool((apart <= limit).all()):
                fitting.append((float(apart.mean()), shift, apart, limit))
        if not fitting:
            return None
        _, shift, apart, limit = min(fitting, key=lambda one: one[:2])
        distances.append((apart, limit))
        words.append(f"request {values.names[values.request[own[0]]]} {_late(shift)}" if shift else "")
    if not any(words):
        return None
    apart, limit = (torch.cat(parts) for parts in zip(*distances, strict=True))
    text = f"noted at positions that count padding: {listed(filter(None, words), _SHOWN)}"
    return as_cause(text, before, apart, limit) if _is_nearer(before, apart) else None


def _late(shift: int) -> str:
    count = "one token" if abs(shift) == 1 else f"{abs(shift)} tokens"
    return f"{count} {'late' if shift > 0 else 'early'}"


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


def _explains(before: Tensor, after: Tensor, limit: Tensor) -> bool:
    return is_explained(after, limit) and _is_nearer(before, after)


def _is_nearer(before: Tensor, after: Tensor) -> bool:
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
