"""Calls of one API in another order, number or module: partners by shapes, names and recorded numbers.

Where they differ in shape, the shapes show the order; else nothing but the values can. Weights and data come from the
same files on both sides, so a maximum and a minimum (or a checksum) that occurs once on each side marks its call, on
whatever device it was computed.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from msgspec import Raw

from msprobe_hooks.dump.call_context import Surroundings
from msprobe_hooks.dump.names import direction_of, plain_dtype, split_called, split_module
from pytest_msprobe.modes.compare.matching.sequence_alignment import align

if TYPE_CHECKING:
    from msprobe_hooks.dump.call_context import Table
    from msprobe_hooks.dump.reader import Dump

T = TypeVar("T")

_NOTHING = Raw(b"{}")

_STRUCTURE = re.compile(
    rb'"(?:input_args|input_kwargs|input|output|parameters)": ?[\[{]|"dtype": ?"(?:torch\.)?\w+"|"shape": ?\[[^\]]*\]'
)
_DTYPE = re.compile(rb'"dtype": ?"(?:torch\.)?(\w+)"')
_ONE_FLOAT = frozenset({"float16", "bfloat16", "float32"})


def signature(dump: Dump, record: str) -> bytes:
    """Return the shapes and dtypes of a record's tensors, group by group; fp16, bf16 and fp32 count as one dtype."""
    return b"".join(_STRUCTURE.findall(_DTYPE.sub(_dtype, bytes(dump.records[record])))).replace(b" ", b"")


def _dtype(match: re.Match[bytes]) -> bytes:
    """Return a dtype as all frameworks would spell it."""
    return b'"dtype": "%s"' % _shared_dtype(match[1])


@cache
def _shared_dtype(name: bytes) -> bytes:
    plain = plain_dtype(name.decode())
    return b"float" if plain in _ONE_FLOAT else plain.encode()


def named_calls(dump: Dump) -> Dump:
    """Return a dump of task structure with a record, that says nothing, for each call that ``construct.json`` names.

    Any other dump comes back as it is. Raises DumpError where that file is damaged.
    """
    if dump.task != "structure" or dump.records:
        return dump
    names = filter(direction_of, intact(Surroundings(dump.path.parent).parents).entries)
    return replace(dump, records=dict.fromkeys(names, _NOTHING))


def intact(table: Table[T]) -> Table[T]:
    """Return what a file next to a dump says; it may be missing or empty. Raises DumpError where it is damaged."""
    return table.undamaged("copy it again, or delete it to compare without it")


_SHAPE = re.compile(rb'"shape": ?\[([^\]]*)\]')
_MARK = re.compile(rb'"(?:Max|Min|md5)": ?([^,\n}]+)')


def swap_by_shape(
    target: Dump, golden: Dump, pairs: Mapping[str, str], group_of: Callable[[str], Hashable]
) -> dict[str, str]:
    """Return better partners for pairs of forward calls whose inputs have other shapes.

    Only calls of one group are exchanged, and only where both sides of it have the same shapes as often: shapes that
    merely differ, as after another batch size, leave the pairs as they are.
    """
    groups: dict[Hashable, list[tuple[str, str]]] = defaultdict(list)
    for name, other in pairs.items():
        groups[group_of(name)].append((name, other))
    swapped: dict[str, str] = {}
    for group in groups.values():
        if len(group) > 1:
            swapped |= _by_shape(target, golden, group)
    return swapped


def _by_shape(target: Dump, golden: Dump, group: list[tuple[str, str]]) -> dict[str, str]:
    shapes = [_shapes(target, name) for name, _ in group]
    others = [_shapes(golden, other) for _, other in group]
    if shapes == others or Counter(shapes) != Counter(others):
        return {}
    waiting: dict[bytes, deque[str]] = defaultdict(deque)
    for shape, (_, other) in zip(others, group, strict=True):
        waiting[shape].append(other)
    moved = {name: waiting[shape].popleft() for shape, (name, _) in zip(shapes, group, strict=True)}
    return {name: moved[name] for name, other in group if moved[name] != other}


def _shapes(dump: Dump, name: str) -> bytes:
    """Return the shapes of a call's inputs as they were written, less the blanks between sizes."""
    raw = bytes(dump.records[name])
    return b";".join(_SHAPE.findall(raw, 0, max(raw.rfind(b'"output"'), 0))).translate(None, b" \n")


def swap_reordered(target: Dump, golden: Dump, pairs: Mapping[str, str]) -> dict[str, str]:
    """Return better partners for pairs of forward calls that share a number and not their inputs.

    Only calls of one API and one structure are exchanged among themselves, and only where every one of them finds a
    partner: values that merely differ, as after an error, leave the pairs as they are.
    """
    if not (target.has_statistics and golden.has_statistics):
        return {}
    groups: dict[Hashable, list[tuple[str, str]]] = defaultdict(list)
    for name, other in pairs.items():
        if bytes(target.records[name]) != bytes(golden.records[other]):
            groups[split_called(name)[0], signature(target, name)].append((name, other))
    swapped: dict[str, str] = {}
    for group in groups.values():
        if len(group) > 1:
            swapped |= _exchange(target, golden, group)
    return swapped


def _exchange(target: Dump, golden: Dump, group: list[tuple[str, str]]) -> dict[str, str]:
    target_marks = {name: _marks(target, name) for name, _ in group}
    golden_marks = {name: _marks(golden, name) for _, name in group}
    differing = [(name, other) for name, other in group if target_marks[name] != golden_marks[other]]
    owners, golden_owners = _owners(target_marks), _owners(golden_marks)
    moved: dict[str, str] = {}
    for name, other in differing:
        votes: dict[str, int] = defaultdict(int)
        for mark in target_marks[name]:
            if len(owners[mark]) == 1 and len(golden_owners.get(mark, ())) == 1:
                votes[golden_owners[mark][0]] += 1
        if votes:
            best = max(votes, key=votes.__getitem__)
            if best != other and votes[best] > votes.get(other, 0):
                moved[name] = best
    return _closed(moved, dict(group))


def _closed(moved: dict[str, str], numbered: Mapping[str, str]) -> dict[str, str]:
    """Keep the moves that give and take among themselves; the rest would leave a call without a partner."""
    while True:
        vacated = {numbered[name] for name in moved}
        closed = {name: other for name, other in moved.items() if other in vacated}
        if len(closed) == len(moved):
            return closed if len(set(closed.values())) == len(closed) else {}
        moved = closed


def _owners(marks: Mapping[str, tuple[Hashable, ...]]) -> dict[Hashable, list[str]]:
    owners: dict[Hashable, list[str]] = defaultdict(list)
    for name, own in marks.items():
        for mark in own:
            owners[mark].append(name)
    return owners


def _marks(dump: Dump, name: str) -> tuple[Hashable, ...]:
    """Return what marks each input: its place among the record's numbers, and its extreme or its checksum."""
    raw = bytes(dump.records[name])
    return tuple(enumerate(_MARK.findall(raw, 0, max(raw.rfind(b'"output"'), 0))))


def place_of(record: str) -> Hashable:
    """Return the attribute path, direction and number of a module's record, without its class."""
    name = split_module(record)
    return name.path, name.rest


def shape_of_module(dump: Dump) -> Callable[[str], Hashable]:
    """Return what distinguishes modules that were renamed: class, direction, number, and the structure of the call."""

    def shape(record: str) -> Hashable:
        name = split_module(record)
        return name.class_name, name.rest, signature(dump, record)

    return shape


def same_sequence(
    target: list[str], golden: list[str], target_key: Callable[[str], Hashable], golden_key: Callable[[str], Hashable]
) -> Iterable[tuple[str, str]]:
    """Pair the n-th of a key with the n-th, for keys that occur as often on both sides."""
    groups: dict[Hashable, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for name in target:
        groups[target_key(name)][0].append(name)
    for name in golden:
        groups[golden_key(name)][1].append(name)
    for mine, other in groups.values():
        if len(mine) == len(other):
            yield from zip(mine, other, strict=True)


def shortest_renaming(target: str, golden: str) -> dict[str, str]:
    """Return what was renamed, without what both paths end in: ``h.1.mlp.act`` and ``h.1.ffn.act`` say mlp and ffn."""
    mine, other = target.split("."), golden.split(".")
    while len(mine) > 1 and len(other) > 1 and mine[-1] == other[-1]:
        mine.pop()
        other.pop()
    return {".".join(mine): ".".join(other)} if mine != other else {}


Numbers: TypeAlias = tuple[bytes, ...]

_NUMBER = re.compile(rb'"(?:Max|Min|Mean|Norm|md5|value)": ?("[^"]*"|[^,\n}\]]+)')
# How far apart the numbers of one call may be, on average and as a share of themselves, to mark it.
_NEAR = 0.01
# Above so many pairs to weigh, equal numbers alone decide: so many take 0.2 s of a core, four times as many 0.6 s.
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
        partnered = {*pairs.values()}
        yield from zip(
            (name for name in names if name not in pairs),
            (other for other in others if other not in partnered),
            strict=True,
        )


def _by_numbers(target: Dump, golden: Dump, names: Sequence[str], others: Sequence[str]) -> Iterator[tuple[str, str]]:
    if not names or not others:
        return
    own, theirs = ([_numbers(dump, name) for name in calls] for dump, calls in ((target, names), (golden, others)))
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
