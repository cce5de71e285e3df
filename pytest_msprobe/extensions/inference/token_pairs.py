"""The tokens that both runs computed, by request and position."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import numpy as np

from pytest_msprobe.extensions.inference.token_layout import Integers, Segment, TokenLayout

SideName = Literal["target", "golden run"]
#: How both runs are called, in the order of their columns.
SIDES: Final[tuple[SideName, SideName]] = ("target", "golden run")


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
        length = position - self.start
        del self.token_ids[length:], self.places[length:], self.segments[length:]


@dataclass(frozen=True, slots=True)
class TokenPairs:
    """Tokens of both runs that are the same token, one entry each.

    Two requests, which a trainer computed in one pass, and an engine's first one in a prefill and a decoding step::

        requests  ["a", "b"]     request   [ 0,      0,      1    ]
                                 position  [ 0,      1,      0    ]
        target, pass and row:             [[0, 0], [0, 1], [0, 2]]
        golden, pass and row:             [[0, 0], [1, 0], [0, 1]]

    Attributes:
        target: Pass and row of each in the target, shape (pairs, 2).
        golden: Pass and row of each in the golden run, shape (pairs, 2).
        requests: The names of the requests.
        request: The number of each one's request.
        position: The position of each in its request.
        token: The token, -1 where that is unknown.
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
    token: Integers
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
            token = own.token_ids[a] if own.has_ids else other.token_ids[b]
            length = len(own.segments[a][0])
            rows.append((*own.places[a], *other.places[b], len(names) - 1, position, token, follows, length))
            logprobs.append((_logprob(own, a), _logprob(other, b)))
    table = np.array(rows, dtype=np.int64).reshape(len(rows), 9)
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
        table[:, 8],
        np.array(logprobs, dtype=np.float64).reshape(len(rows), 2)[order],
        target_only=sum(len(sequence.places) for sequence in ours) - len(rows),
        golden_only=sum(len(sequence.places) for sequence in theirs) - len(rows),
    )


def _logprob(sequence: RequestTokens, place: int) -> float:
    segment, at = sequence.segments[place]
    logprob = segment.logprobs[at] if segment.logprobs else None
    return float("nan") if logprob is None else logprob


def _sequences(layouts: Sequence[TokenLayout], references: Sequence[RequestTokens]) -> list[RequestTokens]:
    """Join the segments of all passes, by name, else by position and by what the known sequences say."""
    sequences: list[RequestTokens] = []
    named: dict[str, RequestTokens] = {}
    for number, layout in enumerate(layouts):
        extended: set[int] = set()
        for segment in (piece for whole in layout.segments for piece in _pieces(whole, sequences, references)):
            if segment.request:
                sequence = named.get(segment.request)
                start = segment.start
                if sequence is not None and start is not None and not sequence.start <= start <= sequence.end:
                    # A gap: an engine took what is missing from its cache of prefixes.
                    sequence = None
            else:
                sequence = _continued(sequences, segment, extended)
            if sequence is None:
                sequence = RequestTokens(segment.request, segment.start or 0, candidates=references)
                sequences.append(sequence)
                if segment.request:
                    named[segment.request] = sequence
            elif segment.start is not None:
                sequence.truncate(segment.start)
            extended.add(id(sequence))
            sequence.candidates = sequence.agreeing(segment)
            sequence.add(number, segment)
    return sequences


def _pieces(
    segment: Segment, sequences: Sequence[RequestTokens], references: Sequence[RequestTokens]
) -> Sequence[Segment]:
    """Return a segment cut where another request goes on.

    Decoded tokens of several requests lie next to each other, and their positions may follow each other by chance.
    """
    if segment.request or segment.start is None or segment.token_ids is None or len(segment) == 1 or not references:
        return [segment]
    waiting = defaultdict[int, list[RequestTokens]](list)
    for sequence in sequences:
        waiting[sequence.end].append(sequence)
    cuts = [0]
    tokens = segment.token_ids.tolist()
    own = _candidates(waiting[segment.start], references, segment.start, tokens[0])
    for place, token in enumerate(tokens[1:], 1):
        position = segment.start + place
        others = [
            candidate
            for candidate in waiting.get(position, ())
            if any(_has(one, position, token) for one in candidate.candidates)
        ]
        following: Sequence[RequestTokens] = [one for one in own if _has(one, position, token)]
        if others and (not following or place - cuts[-1] == 1):
            cuts.append(place)
            following = _candidates(others, references, position, token)
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
    waiting: Sequence[RequestTokens], references: Sequence[RequestTokens], position: int, token: int
) -> Sequence[RequestTokens]:
    candidates = [one for sequence in waiting for one in sequence.candidates] if position else references
    return [one for one in candidates if _has(one, position, token)]


def _has(sequence: RequestTokens, position: int, token: int) -> bool:
    place = position - sequence.start
    return 0 <= place < len(sequence.token_ids) and sequence.token_ids[place] == token


def _continued(sequences: Sequence[RequestTokens], segment: Segment, extended: set[int]) -> RequestTokens | None:
    """Return the sequence that a segment without a name continues, None where it begins one."""
    if segment.start == 0:
        return None
    fitting = [
        sequence
        for sequence in sequences
        if id(sequence) not in extended and not sequence.name and segment.start in (None, sequence.end)
    ]
    if segment.token_ids is None or not any(sequence.candidates for sequence in fitting):
        return next(iter(fitting), None)
    return next((sequence for sequence in fitting if sequence.agreeing(segment)), None)


def _partners(
    ours: Sequence[RequestTokens], theirs: Sequence[RequestTokens]
) -> Iterator[tuple[RequestTokens, RequestTokens]]:
    by_name = {sequence.name: sequence for sequence in theirs if sequence.name}
    partnered: set[int] = set()
    candidates = defaultdict[tuple[int, ...], list[RequestTokens]](list)
    for sequence in theirs:
        candidates[tuple(sequence.token_ids[:1])].append(sequence)
    for own in ours:
        other = by_name.get(own.name) if own.name else None
        if other is None:
            other = _by_tokens(own, theirs if own.start else candidates[tuple(own.token_ids[:1])], partnered)
        if other is not None:
            partnered.add(id(other))
            yield own, other


def _by_tokens(own: RequestTokens, theirs: Sequence[RequestTokens], partnered: set[int]) -> RequestTokens | None:
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
        rank = (shared, id(other) not in partnered)
        if shared and (best is None or rank > best[:2]):
            best = (*rank, other)
    return None if best is None else best[2]
