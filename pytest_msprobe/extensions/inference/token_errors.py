"""The tokens that both runs computed, by request and position, and errors of a module's rows, token by token."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from pytest_msprobe.extensions.inference.run_values import RunValues
from pytest_msprobe.extensions.inference.token_layout import Integers, Segment, TokenLayout, UnalignedError, row_places

Numbers: TypeAlias = NDArray[np.float64]
#: Pairs of tokens by number, with the rows of both runs.
Aligned: TypeAlias = tuple[NDArray[np.int64], torch.Tensor, torch.Tensor]

# So many elements of each run are in memory as float64.
_ELEMENTS = 2**22
# A token's own norm counts down to this share of the usual one: rounding does not shrink with a result that cancels.
_LEAST_SCALE = 0.1


@dataclass(frozen=True, slots=True)
class TokenErrors:
    """The errors of one value.

    Attributes:
        pairs: The numbers of the pairs of tokens that both runs have rows of.
        errors: The norm of each row's difference as a fraction of the golden row's norm, at least a tenth of the usual
            one; inf where either has NaN or inf that the other has not.
        factors: The factor of each golden row that is nearest to the target's.
        unexplained: The share of each row's difference that remains with its factor.
        factor: The one factor for all rows that is nearest.
        factor_unexplained: The share of the whole difference that remains with it.
        cosine: The cosine of the angle between all rows of both runs.
        max_abs_err: The greatest difference of two elements.
        width: The number of columns.
        statistics: max, min, mean and norm of the rows in target and golden run.
    """

    pairs: NDArray[np.int64]
    errors: Numbers
    factors: Numbers
    unexplained: Numbers
    factor: float
    factor_unexplained: float
    cosine: float
    max_abs_err: float
    width: int
    statistics: tuple[tuple[float, float, float, float], tuple[float, float, float, float]]


def aligned_rows(name: str, target: RunValues, golden: RunValues, pairs: TokenPairs) -> Iterator[Aligned]:
    """Yield the rows of a value that both runs have, a block of tokens at a time, as float64.

    Raises UnalignedError where rows are no tokens, or have another width; DumpError where a file is unusable.
    """
    both = np.stack([pairs.target[:, 0], pairs.golden[:, 0]], axis=1)
    loaded: dict[tuple[int, int], tuple[torch.Tensor, NDArray[np.int64]] | None] = {}
    for passes in np.unique(both, axis=0):
        sides = (target, golden)
        for side, number in enumerate(map(int, passes)):
            if (side, number) not in loaded:
                loaded = {key: rows for key, rows in loaded.items() if key[0] != side}
                width = None if side else golden.own_widths.get(name)
                width = target.own_widths.get(name) if side and width is None else width
                rows = sides[side].rows(name, number, width)
                layout = sides[side].passes[number].layout
                assert layout is not None
                loaded[side, number] = None if rows is None else (rows, row_places(len(rows), layout))
        found = [loaded[side, number] for side, number in enumerate(map(int, passes))]
        ours, theirs = found
        if ours is None or theirs is None:
            continue
        numbers = np.flatnonzero((both == passes).all(axis=1))
        places = ours[1][pairs.target[numbers, 1]], theirs[1][pairs.golden[numbers, 1]]
        held = (places[0] >= 0) & (places[1] >= 0)
        yield from _blocks(numbers[held], ours[0], theirs[0], places[0][held], places[1][held])


def _blocks(
    numbers: NDArray[np.int64],
    ours: torch.Tensor,
    theirs: torch.Tensor,
    our_rows: NDArray[np.int64],
    their_rows: NDArray[np.int64],
) -> Iterator[Aligned]:
    width = ours.shape[1]
    if width != theirs.shape[1]:
        raise UnalignedError(f"{width} columns in the target, {theirs.shape[1]} in the golden run")
    length = max(_ELEMENTS // max(width, 1), 1)
    for first in range(0, len(numbers), length):
        part = slice(first, first + length)
        yield (
            numbers[part],
            ours[torch.from_numpy(our_rows[part])].double(),
            theirs[torch.from_numpy(their_rows[part])].double(),
        )


def measure_tokens(name: str, target: RunValues, golden: RunValues, pairs: TokenPairs) -> TokenErrors | None:
    """Return the errors of a value; None where no token has a row in both runs. Raises as `aligned_rows` does."""
    numbers: list[NDArray[np.int64]] = []
    sums: list[Numbers] = []
    greatest, width = 0.0, 0
    extremes = [[-math.inf, math.inf, 0.0], [-math.inf, math.inf, 0.0]]
    for block, mine, other in aligned_rows(name, target, golden, pairs):
        if not len(block):
            continue
        width = mine.shape[1]
        # Equal infinities and NaN are no difference.
        are_equal = (mine == other) | (mine.isnan() & other.isnan())
        mine, other = (
            mine.masked_fill(are_equal & ~mine.isfinite(), 0),
            other.masked_fill(are_equal & ~other.isfinite(), 0),
        )
        difference = mine - other
        squares = [(difference * difference), (other * other), (mine * mine), (mine * other)]
        sums.append(np.stack([each.sum(dim=1).numpy() for each in squares], axis=1))
        greatest = max(greatest, float(difference.abs().nan_to_num(nan=math.inf).max()))
        for one, numbers_of in zip(extremes, (mine, other), strict=True):
            one[:] = [
                max(one[0], float(numbers_of.max())),
                min(one[1], float(numbers_of.min())),
                one[2] + float(numbers_of.sum()),
            ]
        numbers.append(block)
    if not sums:
        return None
    distance, own, mine_squares, products = np.concatenate(sums).T
    with np.errstate(all="ignore"):
        scale = np.sqrt(own)
        usual = float(np.median(scale[np.isfinite(scale)])) if np.isfinite(scale).any() else 0.0
        scale = np.maximum(scale, _LEAST_SCALE * usual)
        errors = np.where(distance == 0, 0.0, np.sqrt(distance) / scale)
        errors = np.where(np.isnan(errors), np.inf, errors)
        factors = products / own
        left = np.clip(mine_squares - products * factors, 0, None)
        unexplained = np.where(distance > 0, np.sqrt(left / distance), 1.0)
        factor = float(products.sum() / own.sum())
        whole = float(np.clip(mine_squares.sum() - factor * products.sum(), 0, None))
        cosine = float(products.sum() / np.sqrt(own.sum() * mine_squares.sum()))
        count = len(distance) * width
        statistics = tuple(
            (one[0], one[1], one[2] / count, float(np.sqrt(total.sum())))
            for one, total in zip(extremes, (mine_squares, own), strict=True)
        )
        return TokenErrors(
            np.concatenate(numbers),
            errors,
            factors,
            unexplained,
            factor,
            math.sqrt(whole / distance.sum()) if distance.sum() > 0 else 1.0,
            cosine,
            greatest,
            width,
            (statistics[0], statistics[1]),
        )


@dataclass(slots=True)
class RequestTokens:
    """One request in one run: where each of its tokens was computed.

    ``places`` has, by position, the pass and the row; ``segments`` the tokens' segment and place in it;
    ``candidates`` are the requests of the other run that have the same tokens so far.
    """

    name: str
    start: int
    token_ids: list[int] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)
    segments: list[tuple[Segment, int]] = field(default_factory=list)
    has_ids: bool = True
    candidates: Sequence[RequestTokens] = ()

    @property
    def end(self) -> int:
        """The position after the last."""
        return self.start + len(self.places)

    def add(self, number: int, segment: Segment) -> None:
        """Add the tokens that a pass computed."""
        self.has_ids = self.has_ids and segment.token_ids is not None
        self.token_ids += [-1] * len(segment) if segment.token_ids is None else segment.token_ids.tolist()
        self.places += [(number, int(row)) for row in segment.rows]
        self.segments += [(segment, place) for place in range(len(segment))]

    def agreeing(self, segment: Segment) -> list[RequestTokens]:
        """Return the candidates that have the tokens of a segment that is added, where they reach as far."""
        if segment.token_ids is None:
            return [*self.candidates]
        start = self.end if segment.start is None else segment.start
        tokens = segment.token_ids.tolist()
        return [
            other
            for other in self.candidates
            if (theirs := other.token_ids[max(start - other.start, 0) :][: len(tokens)]) == tokens[: len(theirs)]
            and start >= other.start
        ]

    def truncate(self, position: int) -> None:
        """Forget the tokens from a position on, which are computed again."""
        kept = position - self.start
        del self.token_ids[kept:], self.places[kept:], self.segments[kept:]


@dataclass(frozen=True, slots=True)
class TokenPairs:
    """Tokens of both runs that are the same token, one entry each.

    Attributes:
        target: Pass and row of each in the target, shape (pairs, 2).
        golden: Pass and row of each in the golden run, shape (pairs, 2).
        requests: The names of the requests.
        request: The number of each one's request.
        position: The position of each in its request.
        next_token: The token after it in the golden run, -1 where that is unknown.
        length: How many tokens of its request the target's pass had: 1 where it was decoded.
        logprobs: The noted log probability of each token in target and golden run, NaN where none is; shape (pairs, 2).
        target_only: How many tokens of the target have no partner.
        golden_only: How many of the golden run have none.
    """

    target: Integers
    golden: Integers
    requests: Sequence[str]
    request: Integers
    position: Integers
    next_token: Integers
    length: Integers
    logprobs: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
    target_only: int
    golden_only: int

    def __len__(self) -> int:
        return len(self.position)

    @property
    def before(self) -> Integers:
        """The pair of the token before each in its request, -1 where that is none."""
        places = [*zip(self.request.tolist(), self.position.tolist(), strict=True)]
        numbers = {place: number for number, place in enumerate(places)}
        return np.array([numbers.get((request, position - 1), -1) for request, position in places], dtype=np.int64)

    def label(self, pair: int, ahead: int = 0) -> str:
        """Return request and position of a pair, or of a token so many positions behind it, in words."""
        return f"request {self.requests[self.request[pair]]}, position {self.position[pair] + ahead}"


def token_pairs(target: Sequence[TokenLayout], golden: Sequence[TokenLayout]) -> TokenPairs:
    """Return the tokens that passes of both runs share.

    Requests are partners by their names where both runs noted names that occur in both, else by their tokens. A token
    that a run computed twice counts where it was computed last.
    """
    theirs = _sequences(golden, ())
    ours = _sequences(target, theirs)
    partners = list(_partners(ours, theirs))
    rows: list[tuple[int, ...]] = []
    logprobs: list[tuple[float, float]] = []
    names: list[str] = []
    for own, other in partners:
        names.append(own.name or other.name or str(len(names)))
        for position in range(max(own.start, other.start), min(own.end, other.end)):
            a, b = position - own.start, position - other.start
            if own.has_ids and other.has_ids and own.token_ids[a] != other.token_ids[b]:
                break
            follows = other.token_ids[b + 1] if other.has_ids and b + 1 < len(other.token_ids) else -1
            if follows < 0 and own.has_ids and a + 1 < len(own.token_ids):
                follows = own.token_ids[a + 1]
            length = len(own.segments[a][0])
            rows.append((*own.places[a], *other.places[b], len(names) - 1, position, follows, length))
            logprobs.append((_logprob(own, a), _logprob(other, b)))
    table = np.array(rows, dtype=np.int64).reshape(len(rows), 8)
    order = np.lexsort((table[:, 3], table[:, 1], table[:, 2], table[:, 0]))
    table = table[order]
    return TokenPairs(
        table[:, 0:2],
        table[:, 2:4],
        names,
        table[:, 4],
        table[:, 5],
        table[:, 6],
        table[:, 7],
        np.array(logprobs, dtype=np.float64).reshape(len(rows), 2)[order],
        target_only=sum(len(each.places) for each in ours) - len(rows),
        golden_only=sum(len(each.places) for each in theirs) - len(rows),
    )


def _logprob(sequence: RequestTokens, place: int) -> float:
    segment, at = sequence.segments[place]
    found = segment.logprobs[at] if segment.logprobs else None
    return float("nan") if found is None else found


def _sequences(layouts: Sequence[TokenLayout], known: Sequence[RequestTokens]) -> list[RequestTokens]:
    """Join the segments of all passes, by name, else by position and by what the known sequences say."""
    found: list[RequestTokens] = []
    named: dict[str, RequestTokens] = {}
    for number, layout in enumerate(layouts):
        extended: set[int] = set()
        for segment in (piece for whole in layout.segments for piece in _pieces(whole, found, known)):
            if segment.request:
                sequence = named.get(segment.request)
                start = segment.start
                if sequence is not None and start is not None and not sequence.start <= start <= sequence.end:
                    # A gap: an engine took what is missing from its cache of prefixes.
                    sequence = None
            else:
                sequence = _continued(found, segment, extended)
            if sequence is None:
                sequence = RequestTokens(segment.request, segment.start or 0, candidates=known)
                found.append(sequence)
                if segment.request:
                    named[segment.request] = sequence
            elif segment.start is not None:
                sequence.truncate(segment.start)
            extended.add(id(sequence))
            sequence.candidates = sequence.agreeing(segment)
            sequence.add(number, segment)
    return found


def _pieces(segment: Segment, found: Sequence[RequestTokens], known: Sequence[RequestTokens]) -> Sequence[Segment]:
    """Return a segment cut where another request goes on.

    Decoded tokens of several requests lie next to each other, and their positions may follow each other by chance.
    """
    if segment.request or segment.start is None or segment.token_ids is None or len(segment) == 1 or not known:
        return [segment]
    waiting = defaultdict[int, list[RequestTokens]](list)
    for sequence in found:
        waiting[sequence.end].append(sequence)
    cuts = [0]
    tokens = segment.token_ids.tolist()
    own = _candidates(waiting[segment.start], known, segment.start, tokens[0])
    for place, token in enumerate(tokens[1:], 1):
        position = segment.start + place
        others = [
            each for each in waiting.get(position, ()) if any(_has(one, position, token) for one in each.candidates)
        ]
        following: Sequence[RequestTokens] = [one for one in own if _has(one, position, token)]
        if others and (not following or place - cuts[-1] == 1):
            cuts.append(place)
            following = _candidates(others, known, position, token)
        own = following
    ends = [*cuts[1:], len(segment)]
    return [
        replace(
            segment,
            start=segment.start + first,
            rows=segment.rows[first:end],
            token_ids=segment.token_ids[first:end],
            logprobs=segment.logprobs[first:end],
        )
        for first, end in zip(cuts, ends, strict=True)
    ]


def _candidates(
    waiting: Sequence[RequestTokens], known: Sequence[RequestTokens], position: int, token: int
) -> Sequence[RequestTokens]:
    wanted = [one for each in waiting for one in each.candidates] if position else known
    return [one for one in wanted if _has(one, position, token)]


def _has(sequence: RequestTokens, position: int, token: int) -> bool:
    place = position - sequence.start
    return 0 <= place < len(sequence.token_ids) and sequence.token_ids[place] == token


def _continued(found: Sequence[RequestTokens], segment: Segment, extended: set[int]) -> RequestTokens | None:
    """Return the sequence that a segment without a name continues, None where it begins one."""
    if segment.start == 0:
        return None
    fitting = [
        sequence
        for sequence in found
        if id(sequence) not in extended and not sequence.name and segment.start in (None, sequence.end)
    ]
    if segment.token_ids is None or not any(sequence.candidates for sequence in fitting):
        return next(iter(fitting), None)
    return next((sequence for sequence in fitting if sequence.agreeing(segment)), None)


def _partners(
    ours: Sequence[RequestTokens], theirs: Sequence[RequestTokens]
) -> Iterator[tuple[RequestTokens, RequestTokens]]:
    by_name = {each.name: each for each in theirs if each.name}
    taken: set[int] = set()
    candidates = defaultdict[tuple[int, ...], list[RequestTokens]](list)
    for each in theirs:
        candidates[tuple(each.token_ids[:1])].append(each)
    for own in ours:
        other = by_name.get(own.name) if own.name else None
        if other is None:
            other = _by_tokens(own, theirs if own.start else candidates[tuple(own.token_ids[:1])], taken)
        if other is not None:
            taken.add(id(other))
            yield own, other


def _by_tokens(own: RequestTokens, theirs: Sequence[RequestTokens], taken: set[int]) -> RequestTokens | None:
    """Return the sequence that shares the most tokens from the first on, one that is not yet taken where several do."""
    best: tuple[int, bool, RequestTokens] | None = None
    for other in theirs:
        first = own.start - other.start
        if first < 0 or own.has_ids != other.has_ids:
            continue
        shared = 0
        for a, b in zip(own.token_ids, other.token_ids[first:], strict=False):
            if a != b:
                break
            shared += 1
        rank = (shared, id(other) not in taken)
        if shared and (best is None or rank > best[:2]):
            best = (*rank, other)
    return None if best is None else best[2]
