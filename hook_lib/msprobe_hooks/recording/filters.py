"""Filters of records: ``scope``, ``list``, ``exclude`` and ``data_mode``, and what each of them removed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase

from msprobe_hooks.dump.names import split_called
from msprobe_hooks.messages import did_you_mean


@dataclass(frozen=True, slots=True)
class DataMode:
    """Directions and sides of a call that are recorded."""

    forward: bool = True
    backward: bool = True
    input: bool = True
    output: bool = True

    @classmethod
    def of(cls, modes: tuple[str, ...]) -> DataMode:
        """Complete what is named: a direction alone means both sides, a side alone both directions."""
        if not modes or "all" in modes:
            return cls()
        directions = {"forward", "backward"} & set(modes) or {"forward", "backward"}
        sides = {"input", "output"} & set(modes) or {"input", "output"}
        return cls("forward" in directions, "backward" in directions, "input" in sides, "output" in sides)


class NameFilter:
    """Follows the order of records: ``scope`` is open from its first name to its second, both included.

    ``list`` keeps names that contain one of its entries. A module whose name does opens a window: everything called
    inside it is kept until it ends. ``exclude`` leaves out the records of what is called so: ``Tensor.t``, or ``t``
    whatever its type, with ``*`` for anything. ``removed`` counts by filter what was not kept.
    """

    def __init__(self, scope: tuple[str, ...], entries: tuple[str, ...], exclude: tuple[str, ...] = ()) -> None:
        self._scope = scope
        self._entries = entries
        self._exclude = exclude
        self._excluded: dict[str, bool] = {}
        self._is_open = not scope
        self._windows = 0
        self.removed: Counter[str] = Counter()
        #: Entries of ``list`` that no name contained, and what was called meanwhile.
        self._unmatched = dict.fromkeys(entries)
        self._called: set[str] = set()
        self.is_trivial = not (scope or entries or exclude)

    def admits(self, name: str) -> bool:
        """Return whether a record is wanted, and move the scope on."""
        if self.is_trivial:
            return True
        if self._scope and name == self._scope[0]:
            self._is_open = True
        inside = self._is_open
        if self._scope and name == self._scope[1]:
            self._is_open = False
        return self._count(inside, name)

    def enter_module(self, name: str) -> bool:
        """Return whether a module's record is wanted; its range lasts until ``leave_module``."""
        if self.is_trivial:
            return True
        if self._scope and name == self._scope[0]:
            self._is_open = True
        if self._entries and self._matches(name):
            self._windows += 1
        return self._count(self._is_open, name)

    def leave_module(self, name: str) -> None:
        """End a module's range and window."""
        if self.is_trivial:
            return
        if self._scope and name == self._scope[1]:
            self._is_open = False
        if self._entries and self._matches(name):
            self._windows -= 1

    def restart(self) -> None:
        """Begin a new step."""
        self._is_open = not self._scope
        self._windows = 0

    def unmatched(self) -> list[str]:
        """Return a line for each entry of ``list`` that no name contained, where any name was looked at."""
        spellings = {spelling for called in self._called for spelling in _spellings(called)}
        entries = self._unmatched if spellings else ()
        return [f"list: no record's name contains {entry!r}{did_you_mean(entry, spellings)}" for entry in entries]

    def _matches(self, name: str) -> bool:
        if self._unmatched:
            self._called.add(split_called(name)[0])
            for entry in [entry for entry in self._unmatched if entry in name]:
                del self._unmatched[entry]
        return any(entry in name for entry in self._entries)

    def _is_excluded(self, name: str) -> bool:
        called = split_called(name)[0]
        is_excluded = self._excluded.get(called)
        if is_excluded is None:
            is_excluded = self._excluded[called] = any(
                fnmatchcase(spelling, entry) for spelling in _spellings(called) for entry in self._exclude
            )
        return is_excluded

    def _count(self, inside: bool, name: str) -> bool:
        if not inside:
            self.removed["scope"] += 1
            return False
        if self._exclude and self._is_excluded(name):
            self.removed["exclude"] += 1
            return False
        if self._entries and not self._windows and not self._matches(name):
            self.removed["list"] += 1
            return False
        return True


def _spellings(called: str) -> tuple[str, str]:
    """Return how a user may call an API: ``Tensor.t``, or ``t`` whatever its type."""
    return called, called.partition(".")[2]
