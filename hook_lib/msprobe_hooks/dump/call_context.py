"""Call stacks and module scopes of records: ``stack.json`` and ``construct.json`` next to a dump.

A dump is whole without them. What is wrong with one is therefore a value, and what is right in it is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from msprobe_hooks.dump.names import forward_of
from msprobe_hooks.dump.recording_paths import CONSTRUCT_FILE, STACK_FILE
from msprobe_hooks.errors import DumpError
from msprobe_hooks.json_decoding import JsonError, decode_json
from msprobe_hooks.messages import id_name
from msprobe_hooks.regular_files import read_regular

# A choice, deeper than any model: it bounds what a damaged construct.json costs.
_MAX_DEPTH = 400
# Not a record: how many micro steps Megatron made of a step.
_MICRO_STEP_COUNT = "megatron_micro_step_number"
_FRAMEWORK = re.compile(r"(?:site|dist)-packages/(?:torch|torch_npu|mindspore|msprobe|msprobe_hooks)/")
_INSTALLED = re.compile(r"(?:site|dist)-packages/|/lib/python3\.\d+/")
_PLACE = re.compile(r"File (?P<file>.+?), line (?P<line>\d+)")
_TEXT = frozenset({str})
_TEXT_OR_NONE = frozenset({str, type(None)})

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Problem:
    """Reason why a file next to a dump is missing, empty or damaged."""

    file: Path
    kind: Literal["missing", "empty", "damaged"]
    text: str

    def __str__(self) -> str:
        return f"no {self.file.name} next to the dump" if self.kind == "missing" else f"{self.file.name}: {self.text}"


@dataclass(frozen=True, slots=True)
class Table(Generic[T]):
    """Entries of one file on records, by the records' names, and the file's problem if there is one."""

    entries: Mapping[str, T]
    problem: Problem | None = None

    def of_call(self, record: str) -> T | None:
        """Return what is said of a record, or else of the forward record of its call; None where nothing is."""
        entry = self.entries.get(record)
        return entry if entry is not None else self.entries.get(forward_of(record))

    def undamaged(self, remedy: str) -> Table[T]:
        """Return this one, whose file may be missing or empty. Raises DumpError, with the remedy, for a damaged one."""
        problem = self.problem
        if problem is not None and problem.kind == "damaged":
            raise DumpError(f"{problem.file} is damaged: {problem.text}; {remedy}")
        return self


class Surroundings:
    """The call stacks of a dump's records and the modules around them, each file read when first asked for."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is that of ``dump.json``."""
        self._stack_file = folder / STACK_FILE
        self.construct_file = folder / CONSTRUCT_FILE

    @property
    def has_stacks(self) -> bool:
        """Return whether there is a ``stack.json``; it is not read for it."""
        return self._stack_file.is_file()

    @cached_property
    def stacks(self) -> Table[tuple[str, ...]]:
        """The call stacks, innermost frame first."""
        return _read(self._stack_file, _stacks)

    @cached_property
    def parents(self) -> Table[str | None]:
        """The record of the module in which each record was made, None at the top."""
        return _read(self.construct_file, _parents)

    @cached_property
    def micro_steps(self) -> Mapping[str, int]:
        """The micro step of each record of which the file says one, as it does for Megatron."""
        return _read(self.construct_file, _micro_steps).entries


class KnownSurroundings(Surroundings):
    """The call context of a dump that has no files: a run that was merged from several ranks."""

    def __init__(
        self,
        folder: Path,
        parents: Table[str | None],
        stacks: Table[tuple[str, ...]],
        micro_steps: Mapping[str, int],
    ) -> None:
        super().__init__(folder)
        self.parents, self.stacks, self.micro_steps = parents, stacks, micro_steps

    @property
    def has_stacks(self) -> bool:
        """Return whether there are call stacks."""
        return bool(self.stacks.entries)


def modules_around(record: str, parent_of: Callable[[str], str | None]) -> list[str]:
    """Return the records of the modules in which a record was made, from the innermost out.

    They end where ``parent_of`` knows no parent, or one that is among them already.
    """
    modules = dict[str, None]()
    parent = parent_of(record)
    while parent and parent not in modules and len(modules) < _MAX_DEPTH:
        modules[parent] = None
        parent = parent_of(parent)
    return list(modules)


def _stacks(content: dict[str, Any]) -> tuple[dict[str, tuple[str, ...]], bool]:
    """Return the stacks and whether all is of a form that msprobe writes."""
    stacks: dict[str, tuple[str, ...]] = {}
    is_whole = True
    for name, value in content.items():
        match value:
            # Records that share a stack stand together under a number.
            case [[*names], [*frames]]:
                stacks |= dict.fromkeys(map(str, names), tuple(map(str, frames)))
            case [*frames] if _TEXT.issuperset(map(type, frames)):
                stacks[name] = tuple(frames)
            case _:
                is_whole = False
    return stacks, is_whole


def _parents(content: dict[str, Any]) -> tuple[dict[str, str | None], bool]:
    """Return the parents and whether all is of a form that msprobe writes."""
    # Megatron's micro steps are next to the parent.
    parents = {
        id_name(name): _first(value) if isinstance(value, list) else value
        for name, value in content.items()
        if name != _MICRO_STEP_COUNT
    }
    texts = {name: _escaped(parent) for name, parent in parents.items() if type(parent) in _TEXT_OR_NONE}
    return texts, len(texts) == len(parents)


def _escaped(parent: Any) -> str | None:
    return None if parent is None else id_name(parent)


def _micro_steps(content: dict[str, Any]) -> tuple[dict[str, int], bool]:
    """Return the micro steps that are listed next to parents."""
    steps = ((name, value[1]) for name, value in content.items() if isinstance(value, list) and len(value) == 2)
    return {id_name(name): step for name, step in steps if type(step) is int and step >= 0}, True


def _first(values: list[Any]) -> Any:
    return values[0] if values else None


def _read(path: Path, entries_of: Callable[[dict[str, Any]], tuple[dict[str, T], bool]]) -> Table[T]:
    content = _content(path)
    if isinstance(content, Problem):
        return Table({}, content)
    entries, is_whole = entries_of(content)
    return Table(entries, None if is_whole else Problem(path, "damaged", "its form is not one that msprobe writes"))


def _content(path: Path) -> dict[str, Any] | Problem:
    try:
        text = read_regular(path)
    except FileNotFoundError:
        return Problem(path, "missing", "does not exist")
    except OSError as error:
        return Problem(path, "damaged", f"cannot be read: {error.strerror}")
    if not text.strip():
        return Problem(path, "empty", "the file is empty")
    try:
        content = decode_json(text)
    except JsonError as error:
        return Problem(path, "damaged", str(error))
    return content if isinstance(content, dict) else Problem(path, "damaged", "not a JSON object")


def outside_frameworks(frames: Sequence[str]) -> Sequence[str]:
    """Return the frames of a call stack outside of frameworks, in their order; all where none is left.

    Those of other libraries stay: a model that comes from one is computed there.
    """
    return [frame for frame in frames if not _FRAMEWORK.search(frame)] or frames


def relevant_frames(frames: Sequence[str], most: int) -> list[str]:
    """Return at most so many frames, innermost first, that show where a call was made.

    They are the innermost outside of frameworks, with the innermost of the user's program among them: in a model
    that comes from a library this may be far out.
    """
    outside = outside_frameworks(frames)
    own = next((place for place, frame in enumerate(outside) if not _INSTALLED.search(frame)), 0)
    return [*outside[:most]] if own < most else [*outside[: most - 1], outside[own]]


def program_place(frames: Sequence[str]) -> tuple[str, int] | None:
    """Return file and line of the innermost frame of the user's program; None where no frame is of one."""
    places = (_PLACE.search(frame) for frame in frames if not _INSTALLED.search(frame))
    return next(((place["file"], int(place["line"])) for place in places if place), None)
