"""Calls of one API of which one run makes more than the other, as where several calls of one run are one of the other.

The n-th is then not the n-th. Shapes, dtypes and plain arguments say which calls may be the same, and where these leave
a choice, the recorded numbers: those of the same call are nearly equal, whatever the device.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from pytest_msprobe.modes.compare.matching.call_signature import signature
from pytest_msprobe.modes.compare.matching.sequence_alignment import align

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump

Numbers: TypeAlias = tuple[bytes, ...]

_NUMBER = re.compile(rb'"(?:Max|Min|Mean|Norm|md5|value)": ?("[^"]*"|[^,\n}\]]+)')
# How far apart the numbers of one call may be, on average and as a share of themselves, to mark it.
_NEAR = 0.01
# Above so many pairs to weigh, equal numbers alone decide.
_MOST_WEIGHED = 10_000


def may_be_weighed(names: Sequence[str], others: Sequence[str]) -> bool:
    """Return whether there are calls on both sides, and so few that each can be held against each."""
    return 0 < len(names) * len(others) <= _MOST_WEIGHED


def pair_unequal(target: Dump, golden: Dump, names: Sequence[str], others: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield pairs of calls of one API by structure and numbers, where the order alone does not say which they are.

    Calls of other shapes are paired only where both runs made as many calls, or where no two calls agree in theirs, as
    after another batch size.
    """
    groups: defaultdict[bytes, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for name in names:
        groups[signature(target, name)][0].append(name)
    for other in others:
        groups[signature(golden, other)][1].append(other)
    if not any(own and theirs for own, theirs in groups.values()):
        yield from _by_numbers(target, golden, names, others)
        return
    pairs: dict[str, str] = {}
    for own, theirs in groups.values():
        pairs |= zip(own, theirs, strict=True) if len(own) == len(theirs) else _by_numbers(target, golden, own, theirs)
    yield from pairs.items()
    if len(names) == len(others):
        taken = {*pairs.values()}
        yield from zip(
            (name for name in names if name not in pairs),
            (other for other in others if other not in taken),
            strict=True,
        )


def _by_numbers(target: Dump, golden: Dump, names: Sequence[str], others: Sequence[str]) -> Iterator[tuple[str, str]]:
    if not names or not others:
        return
    own, theirs = ([_numbers(dump, name) for name in each] for dump, each in ((target, names), (golden, others)))
    places = (
        _nearest([[_distance(a, b) for b in theirs] for a in own])
        if may_be_weighed(names, others)
        else align(own, theirs)
    )
    yield from ((names[i], others[j]) for i, j in places)


def _numbers(dump: Dump, name: str) -> Numbers:
    return tuple(_NUMBER.findall(bytes(dump.records[name])))


def _distance(a: Numbers, b: Numbers) -> float:
    """Return how far the numbers of two calls are apart: 0 for equal ones, 1 for those that have nothing in common."""
    if a == b:
        return 0.0
    if len(a) != len(b):
        return 1.0
    return sum(map(_apart, a, b)) / max(len(a), 1)


def _apart(a: bytes, b: bytes) -> float:
    if a == b:
        return 0.0
    try:
        x, y = float(a), float(b)
    except ValueError:
        return 1.0
    scale = max(abs(x), abs(y))
    return min(abs(x - y) / scale, 1.0) if abs(x - y) <= scale else 1.0


def _nearest(distances: list[list[float]]) -> list[tuple[int, int]]:
    """Return pairs of rows and columns: first those that are nearest to each other alone, then the best in order."""
    columns = [list(column) for column in zip(*distances, strict=True)]
    pairs = [
        (i, j)
        for i, row in enumerate(distances)
        if row.count(min(row)) == 1 and row[j := row.index(min(row))] <= _NEAR
        if columns[j].count(min(columns[j])) == 1 and columns[j].index(min(columns[j])) == i
    ]
    rows = sorted({*range(len(distances))} - {i for i, _ in pairs})
    left = sorted({*range(len(columns))} - {j for _, j in pairs})
    if len(rows) <= len(left):
        rest = _in_order([[distances[i][j] for j in left] for i in rows])
        return sorted([*pairs, *((rows[i], left[j]) for i, j in rest)])
    rest = _in_order([[distances[i][j] for i in rows] for j in left])
    return sorted([*pairs, *((rows[i], left[j]) for j, i in rest)])


def _in_order(distances: list[list[float]]) -> list[tuple[int, int]]:
    """Return the column of each row so that columns ascend and the sum of distances is least; rows are the fewer."""
    if not distances:
        return []
    count = len(distances[0])
    # The least sum of the rows so far, of which the last has a column below each place.
    least = [0.0] * (count + 1)
    tables = []
    for i, row in enumerate(distances):
        best = [float("inf")] * (count + 1)
        for j in range(i, count):
            best[j + 1] = min(best[j], least[j] + row[j])
        tables.append(best)
        least = best
    pairs = []
    end = count
    for i in reversed(range(len(distances))):
        while tables[i][end - 1] <= tables[i][end]:
            end -= 1
        pairs.append((i, end - 1))
        end -= 1
    return pairs[::-1]
