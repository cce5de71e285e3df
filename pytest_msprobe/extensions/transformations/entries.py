"""Entries of transformations: the values of one side that each names, and the steps by which they are turned."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec.structs import replace

from msprobe_hooks.dump.names import float_dtype
from pytest_msprobe.extensions.transformations.step import Side, Step

if TYPE_CHECKING:
    from msprobe_hooks.dump.values import Value
    from pytest_msprobe.modes.compare.rows import Row


# What recorders put behind the name of a value to name its file.
_SUFFIXES = (".pt", ".npy")


class Names(Protocol):
    """Names of recorded values."""

    @property
    def text(self) -> str:
        """The names in words."""

    @property
    def beginning(self) -> str:
        """Return what all of the names begin with; empty where that is not known."""

    def has(self, value: Value) -> bool:
        """Return whether a value is one of them."""

    def may_be_of(self, record: str) -> bool:
        """Return whether a value of a record may be one of them, quickly."""


@dataclass(frozen=True)
class NamePattern:
    """Full names of values in which ``*`` is any text, dots included, and ``?`` one character."""

    text: str

    def has(self, value: Value) -> bool:
        """Return whether a value's full name is as the pattern says."""
        return self._whole.fullmatch(value.name) is not None

    def may_be_of(self, record: str) -> bool:
        """Return whether the beginning of the pattern fits a record."""
        return record.startswith(self.beginning) or self.beginning.startswith(f"{record}.")

    @cached_property
    def beginning(self) -> str:
        """Return what is in front of the first wild character."""
        return re.split(r"[*?]", self.text, maxsplit=1)[0]

    @cached_property
    def _whole(self) -> re.Pattern[str]:
        wild = {"*": ".*", "?": "."}
        return re.compile("".join(wild.get(character) or re.escape(character) for character in self.text), re.DOTALL)


@dataclass(frozen=True)
class ListedNames:
    """Names of values or of their files, one by one."""

    names: frozenset[str]
    beginning = ""

    @property
    def text(self) -> str:
        """The first name, and how many there are."""
        first = min(self.names, default="")
        return f"{first} and {len(self.names) - 1} more" if len(self.names) > 1 else first

    def has(self, value: Value) -> bool:
        """Return whether a value or its file has one of the names."""
        return value.data_name in self.names or value.name in self._of_values

    def may_be_of(self, record: str) -> bool:
        """Return whether one of the names begins with that of a record."""
        return record in self._beginnings

    @cached_property
    def _of_values(self) -> frozenset[str]:
        return frozenset(_without_suffix(name) for name in self.names)

    @cached_property
    def _beginnings(self) -> frozenset[str]:
        beginnings: set[str] = set()
        for name in self._of_values:
            words = name.split(".")
            beginnings |= {".".join(words[:count]) for count in range(1, len(words))}
        return frozenset(beginnings)


def _without_suffix(name: str) -> str:
    return next((name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix)), name)


@dataclass(frozen=True)
class Entry:
    """Some values of one side, and the steps by which each of them is turned.

    ``place`` is the file and line, or the hook, that says so. ``precision`` is the floating-point dtype whose limits
    judge the value, None for the dtypes that were recorded.
    """

    names: Names
    side: Side
    steps: tuple[Step, ...]
    place: str
    precision: str | None = None


class Transformed(NamedTuple):
    """A value's entries, and in words what they do: ``golden rotated by Q.npy``."""

    entries: tuple[Entry, ...]
    words: str

    @property
    def keeps(self) -> frozenset[str]:
        """The statistics that no step changes."""
        return frozenset.intersection(*(step.keeps for entry in self.entries for step in entry.steps))

    @property
    def precision(self) -> str | None:
        """The dtype by whose limits the value is judged, that of the last entry that names one."""
        return next((entry.precision for entry in reversed(self.entries) if entry.precision), None)


def refused(row: Row, entry: Entry, problem: str) -> Row:
    """Return a row that fails because an entry does not fit it."""
    return replace(row, outcome="fail", unmeasured="transform", messages=(f"{entry.place}: {problem}",))


def refused_shapes(row: Row, transformed: tuple[Transformed | None, ...], target: object, golden: object) -> Row:
    """Return a row that fails because the two sides have other shapes after their steps."""
    entry = next(side.entries[-1] for side in transformed if side is not None)
    return refused(row, entry, f"the target is {target} and golden is {golden} after it; correct the steps")


def judged_as(row: Row, transformed: tuple[Transformed | None, ...]) -> Row:
    """Return a row with both sides' floats of the dtype by whose limits an entry has them judged, where one does."""
    precision = next((side.precision for side in transformed if side is not None and side.precision), None)
    if precision is None:
        return row
    return replace(row, target=_as_dtype(row.target, precision), golden=_as_dtype(row.golden, precision))


def _as_dtype(value: Value | None, dtype: str) -> Value | None:
    return replace(value, dtype=f"torch.{dtype}") if value is not None and float_dtype(value.dtype) else value
