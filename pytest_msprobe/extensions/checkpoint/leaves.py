"""Leaves of nested dicts, lists and tuples of a file, under dotted names.

A file of 2 KB may hold a container in two places of another, forty levels deep: it has more leaves than anything can
walk. So places are bounded by what is written in the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msprobe_hooks.dump.schema import MAX_DEPTH
from msprobe_hooks.messages import escaped_name

# How many places may be walked: as many as these, and a few for each entry that is written. Real files share little.
_FREE_PLACES = 10_000
_PLACES_PER_ENTRY = 10
_LONGEST_NAME = 10_000
_SHOWN = 80


class TreeError(ValueError):
    """A nested file cannot be walked; the text says why."""


def leaves(tree: Any) -> Iterator[tuple[str, Any]]:
    """Yield what is not a dict, list or tuple with its dotted name, such as ``model.weight`` or ``states.0``.

    Names can be typed: what has no shape is spelled out.

    Raises TreeError where containers are nested too deeply, are repeated too often, or have too long names.
    """
    return _Walk().leaves(tree, "", 0)


class _Walk:
    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._written = self._walked = 0

    def leaves(self, node: Any, name: str, depth: int) -> Iterator[tuple[str, Any]]:
        if not isinstance(node, (Mapping, list, tuple)):
            yield name, node
            return
        if depth > MAX_DEPTH:
            raise TreeError(f"{name[:_SHOWN]} ... is nested deeper than {MAX_DEPTH} levels")
        if len(name) > _LONGEST_NAME:
            raise TreeError(f"{name[:_SHOWN]} ... is a name of more than {_LONGEST_NAME} characters")
        self._count(node, name)
        children: Iterable[tuple[Any, Any]] = node.items() if isinstance(node, Mapping) else enumerate(node)
        for key, child in children:
            place = escaped_name(str(key))
            yield from self.leaves(child, f"{name}.{place}" if name else place, depth + 1)

    def _count(self, node: Mapping[Any, Any] | list[Any] | tuple[Any, ...], name: str) -> None:
        entries = len(node)
        self._walked += entries
        if id(node) not in self._seen:
            self._seen.add(id(node))
            self._written += entries
        if self._walked > _FREE_PLACES + _PLACES_PER_ENTRY * self._written:
            raise TreeError(f"{name[:_SHOWN]}: the same containers are repeated too often")
