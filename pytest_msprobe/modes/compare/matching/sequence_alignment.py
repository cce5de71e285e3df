"""Two sequences aligned by keys, where calls were added, left out or moved."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise


def align(target: Sequence[Hashable], golden: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return pairs of places with equal keys, at most one per place, in the order of ``target``.

    Keys that occur once on both sides anchor the rest (patience diff); from each anchor the runs of equal keys are
    followed in both directions, and what remains between two anchors is paired by key, first with first. O(n log n).
    """
    anchors = [(-1, -1), *_anchors(target, golden), (len(target), len(golden))]
    pairs = [*anchors[1:-1]]
    for (i, j), (next_i, next_j) in pairwise(anchors):
        pairs += _between(target, golden, range(i + 1, next_i), range(j + 1, next_j))
    left_target = sorted(set(range(len(target))) - {i for i, _ in pairs})
    left_golden = sorted(set(range(len(golden))) - {j for _, j in pairs})
    return sorted([*pairs, *_first_with_first(target, golden, left_target, left_golden)])


def _anchors(target: Sequence[Hashable], golden: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return the longest increasing run of places of keys that are unique on both sides."""
    once_target, once_golden = Counter(target), Counter(golden)
    place = {key: j for j, key in enumerate(golden) if once_golden[key] == 1}
    unique = [(i, place[key]) for i, key in enumerate(target) if once_target[key] == 1 and key in place]
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
    target: Sequence[Hashable], golden: Sequence[Hashable], target_places: range, golden_places: range
) -> Iterator[tuple[int, int]]:
    i, j = target_places.start, golden_places.start
    while i < target_places.stop and j < golden_places.stop and target[i] == golden[j]:
        yield i, j
        i, j = i + 1, j + 1
    last_i, last_j = target_places.stop - 1, golden_places.stop - 1
    while last_i >= i and last_j >= j and target[last_i] == golden[last_j]:
        yield last_i, last_j
        last_i, last_j = last_i - 1, last_j - 1
    yield from _first_with_first(target, golden, range(i, last_i + 1), range(j, last_j + 1))


def _first_with_first(
    target: Sequence[Hashable], golden: Sequence[Hashable], target_places: Sequence[int], golden_places: Sequence[int]
) -> Iterator[tuple[int, int]]:
    waiting: dict[Hashable, deque[int]] = defaultdict(deque)
    for j in golden_places:
        waiting[golden[j]].append(j)
    for i in target_places:
        places = waiting.get(target[i])
        if places:
            yield i, places.popleft()
