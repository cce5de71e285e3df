"""Two sequences aligned by keys, where calls were added, left out or moved."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise


def align(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return pairs of places with equal keys, at most one per place, in the order of ``ours``.

    Keys that occur once on both sides anchor the rest (patience diff); from each anchor the runs of equal keys are
    followed in both directions, and what remains between two anchors is paired by key, first with first. O(n log n).
    """
    anchors = [(-1, -1), *_anchors(ours, theirs), (len(ours), len(theirs))]
    pairs = [*anchors[1:-1]]
    for (i, j), (next_i, next_j) in pairwise(anchors):
        pairs += _between(ours, theirs, range(i + 1, next_i), range(j + 1, next_j))
    left_ours = sorted(set(range(len(ours))) - {i for i, _ in pairs})
    left_theirs = sorted(set(range(len(theirs))) - {j for _, j in pairs})
    return sorted([*pairs, *_first_with_first(ours, theirs, left_ours, left_theirs)])


def _anchors(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return the longest increasing run of places of keys that are unique on both sides."""
    once_ours, once_theirs = Counter(ours), Counter(theirs)
    place = {key: j for j, key in enumerate(theirs) if once_theirs[key] == 1}
    unique = [(i, place[key]) for i, key in enumerate(ours) if once_ours[key] == 1 and key in place]
    tails: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for k, (_, j) in enumerate(unique):
        at = bisect_left(tails, j)
        before.append(ends[at - 1] if at else -1)
        tails[at : at + 1] = [j]
        ends[at : at + 1] = [k]
    run: list[tuple[int, int]] = []
    k = ends[-1] if ends else -1
    while k >= 0:
        run.append(unique[k])
        k = before[k]
    return run[::-1]


def _between(
    ours: Sequence[Hashable], theirs: Sequence[Hashable], mine: range, other: range
) -> Iterator[tuple[int, int]]:
    i, j = mine.start, other.start
    while i < mine.stop and j < other.stop and ours[i] == theirs[j]:
        yield i, j
        i, j = i + 1, j + 1
    last_i, last_j = mine.stop - 1, other.stop - 1
    while last_i >= i and last_j >= j and ours[last_i] == theirs[last_j]:
        yield last_i, last_j
        last_i, last_j = last_i - 1, last_j - 1
    yield from _first_with_first(ours, theirs, range(i, last_i + 1), range(j, last_j + 1))


def _first_with_first(
    ours: Sequence[Hashable], theirs: Sequence[Hashable], mine: Sequence[int], other: Sequence[int]
) -> Iterator[tuple[int, int]]:
    waiting: dict[Hashable, deque[int]] = defaultdict(deque)
    for j in other:
        waiting[theirs[j]].append(j)
    for i in mine:
        places = waiting.get(ours[i])
        if places:
            yield i, places.popleft()
