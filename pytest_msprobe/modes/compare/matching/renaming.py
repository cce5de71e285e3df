"""Modules that have another name in the golden run: what is the same all the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING

from msprobe_hooks.dump.names import split_module
from pytest_msprobe.modes.compare.matching.call_signature import signature

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump


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
