"""Sequences of several ranks brought together: which of their elements are one and the same event.

Every rank of a group should have made the same calls in the same order. Where one has not, the elements that follow
must not all be brought together with their neighbours: the sequences are aligned again behind the difference.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeAlias

# How far behind a difference two sequences are looked through for where they agree again, and over how many elements
# they must then agree: one alone agrees by chance where a program repeats itself.
_WINDOW = 12
_AGREEING = 3

#: Elements that are one event: by sequence, the element's position in it.
Column: TypeAlias = dict[int, int]


def align(sequences: Mapping[int, Sequence[Hashable]]) -> list[Column]:
    """Align the elements of sequences, in the order of most of them.

    An element at another place of its sequence, near by, is brought together with its equals; one that replaces
    others, with these. The names of the sequences change nothing.
    """
    rows = {name: tuple(sequence) for name, sequence in sequences.items() if sequence}
    if not rows:
        return []
    if len(set(rows.values())) == 1:
        length = len(next(iter(rows.values())))
        return [dict.fromkeys(rows, place) for place in range(length)]
    common = _common(list(rows.values()))
    columns: list[Column] = [{} for _ in common]
    extra = defaultdict[int, dict[int, list[int]]](lambda: defaultdict(list))
    pairs: dict[tuple[Hashable, ...], list[tuple[int | None, int]]] = {}
    for name, sequence in rows.items():
        if sequence not in pairs:
            pairs[sequence] = list(_pairs(common, sequence))
        behind = 0
        for place, own in pairs[sequence]:
            if place is None:
                extra[behind][name].append(own)
            else:
                columns[place][name] = own
                behind = max(behind, place + 1)
    return [column for place in range(len(common) + 1) for column in _inserted(columns, extra, place, rows)]


def _inserted(
    columns: list[Column],
    extra: Mapping[int, Mapping[int, list[int]]],
    place: int,
    sequences: Mapping[int, Sequence[Hashable]],
) -> Iterator[Column]:
    """Yield what only some sequences have before a place of the common one, and then that place."""
    own = extra.get(place, {})
    among = align({name: [sequences[name][i] for i in places] for name, places in own.items()})
    for column in among:
        yield {name: own[name][i] for name, i in column.items()}
    if place < len(columns):
        yield columns[place]


def _common(sequences: list[tuple[Hashable, ...]]) -> tuple[Hashable, ...]:
    """Return the sequence that most follow: at each place what most of those say that have agreed so far."""
    followers = sequences
    common: list[Hashable] = []
    while True:
        place = len(common)
        votes = Counter(sequence[place] for sequence in followers if len(sequence) > place)
        if not votes:
            return tuple(common)
        if len(votes) == 1:
            common.append(next(iter(votes)))
            continue
        length = {element: _longest(followers, place, element) for element in votes}
        # Equal votes go to who has more to say, then to the content, so that no rank's number decides.
        winner = max(votes, key=lambda element: (votes[element], length[element], repr(element)))
        common.append(winner)
        followers = [follower for follower in followers if len(follower) <= place or follower[place] == winner]


def _longest(sequences: list[tuple[Hashable, ...]], place: int, element: Hashable) -> int:
    return max(len(sequence) for sequence in sequences if len(sequence) > place and sequence[place] == element)


def _pairs(common: Sequence[Hashable], own: Sequence[Hashable]) -> Iterator[tuple[int | None, int]]:
    """Yield for each element of a sequence its place in the common one, None where it has none there."""
    here = there = 0
    while there < len(own):
        if here < len(common) and common[here] == own[there]:
            yield here, there
            here, there = here + 1, there + 1
            continue
        skipped, inserted = _next_agreement(common, here, own, there)
        yield from _block(common, range(here, here + skipped), own, range(there, there + inserted))
        here, there = here + skipped, there + inserted


def _next_agreement(common: Sequence[Hashable], here: int, own: Sequence[Hashable], there: int) -> tuple[int, int]:
    """Return how many elements of both lie before the next place where they agree."""
    left, right = len(common) - here, len(own) - there
    near = [(skipped, inserted) for skipped, inserted in _STEPS if skipped <= left and inserted <= right]
    # A sequence that ends early agrees with the beginning of the other, if nothing agrees better.
    for may_end_early in (False, True):
        for skipped, inserted in near:
            behind = common[here + skipped : here + skipped + _AGREEING]
            ahead = own[there + inserted : there + inserted + _AGREEING]
            shared = min(len(behind), len(ahead)) if may_end_early else _AGREEING
            if behind[:shared] == ahead[:shared] and (shared or not may_end_early):
                return skipped, inserted
    return min(1, left), 1


# Nearest first, and as many of both before: one call in the place of another.
_STEPS = sorted(
    ((skipped, inserted) for skipped in range(_WINDOW + 1) for inserted in range(_WINDOW + 1) if skipped or inserted),
    key=lambda step: (max(step), abs(step[0] - step[1])),
)


def _block(
    common: Sequence[Hashable], places: range, own: Sequence[Hashable], positions: range
) -> Iterator[tuple[int | None, int]]:
    """Yield pairs where sequences differ: equal elements first, whatever their order; then what replaces another."""
    free = list(places)
    partners: dict[int, int | None] = {}
    for position in positions:
        equal = next((place for place in free if common[place] == own[position]), None)
        if equal is not None:
            free.remove(equal)
            partners[position] = equal
    rest = [position for position in positions if position not in partners]
    if len(rest) == len(free):
        partners |= zip(rest, free, strict=True)
    for position in positions:
        yield partners.get(position), position
