"""Calls of one API that were made in another order: the same number names another call on each side.

Where they differ in shape, the shapes show the order; else nothing but the values can. Weights and data come from the
same files on both sides, so a maximum and a minimum (or a checksum) that occurs once on each side marks its call, on
whatever device it was computed.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING

from msprobe_hooks.dump.names import split_called
from pytest_msprobe.modes.compare.matching.call_signature import signature

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump

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
        given = {numbered[name] for name in moved}
        kept = {name: other for name, other in moved.items() if other in given}
        if len(kept) == len(moved):
            return kept if len(set(kept.values())) == len(kept) else {}
        moved = kept


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
