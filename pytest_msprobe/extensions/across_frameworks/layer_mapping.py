"""Layer mapping: only what the layers of two runs are called differently is written down, all else follows from it.

A file says, for a class of the target's layers, what a child is called in the golden run. Each record of the target is
followed from the root of its model; where the golden model has calls at the place that this leads to, the n-th call of
one is the n-th of the other.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path as File
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from msprobe_hooks.dump.call_context import Surroundings
from msprobe_hooks.dump.names import direction_of, forward_of, is_module_name, shared_name, split_called, split_module
from msprobe_hooks.dump.recording_paths import CONSTRUCT_FILE
from msprobe_hooks.errors import DumpError
from pytest_msprobe.modes.compare.matching.reordering import intact
from pytest_msprobe.yaml_with_lines import Section, read_document

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump


_EXAMPLE = "TopLayer: {network_with_loss: module}"
_OLD_TOP = "Cell"

Path: TypeAlias = tuple[str, ...]

#: The class of the root, of which every outermost layer and call is a part.
_TOP = "TopLayer"
_RENUMBERED = "ParallelTransformer"
_FRAME = re.compile(r"File (?P<path>.*?), line \d+, in (?P<function>[^,]+)")
_FRAMEWORK = re.compile(r"(?:site-packages|package)/(?:torch|mindspore)/")
_FORWARD = frozenset({"forward", "backward", "construct"})
_NO_SCOPE = frozenset({"__call__", "construct"})
_OWN_TOOLS = ("msprobe", "mindspeed")

T = TypeVar("T")
Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Child:
    """Golden name of a path of the target below a layer, and the entry's line in the file."""

    golden: Path
    line: int


@dataclass(frozen=True)
class LayerMapping:
    """The children of each class of parents.

    ``applied`` are the entries that a record of the target was under, ``used`` those that led one to a partner.
    """

    path: File
    children: Mapping[str, Mapping[Path, Child]]
    applied: set[tuple[str, Path]] = field(default_factory=set)
    used: set[tuple[str, Path]] = field(default_factory=set)

    @cached_property
    def _by_words(self) -> dict[str, LongestFirst[Child]]:
        return {parent: LongestFirst(children) for parent, children in self.children.items()}

    def golden_path(self, path: Path, class_of: Callable[[Path], str]) -> tuple[Path, Sequence[tuple[str, Path]]]:
        """Return where a place of the target is in the golden model, and the entries that say so.

        ``class_of`` gives the class at a place.
        """
        golden_words: list[str] = []
        entries_used: list[tuple[str, Path]] = []
        at = 0
        while at < len(path):
            parent = class_of(path[:at])
            entries = self._by_words.get(parent)
            entry = entries.at(path, at) if entries is not None else None
            if entry is None:
                golden_words.append(path[at])
                at += 1
            else:
                words, child = entry
                golden_words += child.golden
                at += len(words)
                entries_used.append((parent, words))
        self.applied.update(entries_used)
        return tuple(golden_words), entries_used

    def unused(self) -> Iterator[str]:
        """Yield, for each entry that led no record to a partner so far, what is wrong with it and its line."""
        if not any(self.children.values()):
            yield f"{self.path}: no entries"
        for parent, children in self.children.items():
            for words, child in children.items():
                where = f"{self.path}, line {child.line}"
                if (parent, words) not in self.applied:
                    yield f"{where}: no {parent} of the target has {'.'.join(words)}"
                elif (parent, words) not in self.used:
                    yield f"{where}: no call of the golden run has a partner below {'.'.join(child.golden)}"


def read_layers(source: File | Section) -> LayerMapping:
    """Read a file. Raises OptionError that names file, line and remedy."""
    children: dict[str, dict[Path, Child]] = {}
    document = read_document(source, _EXAMPLE)
    for parent, key, section in document.items(f"not a layer mapping; it maps classes to children, as in  {_EXAMPLE}"):
        name = _TOP if parent == _OLD_TOP else parent
        if name in children:
            raise key.refuse(f"{_OLD_TOP!r} is an older word for {_TOP!r}, and both are there; delete one")
        children[name] = {}
        for target_path, place, value in section.items(
            f"{parent} maps its children to golden paths, as in  {_EXAMPLE}"
        ):
            golden_path = value.text(f"the golden path of {target_path}")
            for text, part in ((target_path, place), (golden_path, value)):
                if not all(text.split(".")):
                    raise part.refuse(f"{text!r} is not a path; join words by single dots, as in attention.query")
            children[name][tuple(target_path.split("."))] = Child(tuple(golden_path.split(".")), place.line)
    return LayerMapping(document.path, children)


def match_layers(
    target: Dump,
    golden: Dump,
    mapping: LayerMapping,
    target_names: Callable[[str], str],
    golden_names: Callable[[str], str],
) -> dict[str, str]:
    """Return the golden record of each record of the target that has one by its place in the model.

    ``target_names`` and ``golden_names`` give the names of APIs that both runs share. Raises DumpError where a run has
    no ``construct.json``.
    """
    for dump in (target, golden):
        if not intact(dump.surroundings.parents).entries:
            raise DumpError(
                f"{dump.path.parent / CONSTRUCT_FILE}: missing or empty; --msprobe-mapping with layer needs the "
                "layers of both runs: record them at level mix or L0, or map values with data"
            )
    scopes, others = _read_scopes(target, target_names), _read_scopes(golden, golden_names)
    partners: dict[str, str] = {}
    # Frameworks call from functions of their own that the other may not have: what these leave over goes by layer.
    for path_of in (_inner, _outer):
        partners |= _by_place(scopes, others, mapping, path_of, partners)
    return partners


def _inner(placed: _ModelPlace) -> Path:
    return placed.inner


def _outer(placed: _ModelPlace) -> Path:
    return placed.path


def _by_place(
    scopes: _Scopes,
    others: _Scopes,
    mapping: LayerMapping,
    path_of: Callable[[_ModelPlace], Path],
    partners: Mapping[str, str],
) -> dict[str, str]:
    partnered = set(partners.values())
    waiting: dict[tuple[Path, str], list[str]] = defaultdict(list)
    for name, placed in others.records.items():
        if name not in partnered:
            waiting[path_of(placed), placed.state].append(name)
    place: dict[tuple[Path, str], int] = defaultdict(int)
    pairs: dict[str, str] = {}
    for name, placed in scopes.records.items():
        if name in partners:
            continue
        path = path_of(placed)
        golden_path, entries = mapping.golden_path(path, scopes.class_of)
        key = golden_path, placed.state
        names = waiting.get(key, ())
        if place[key] < len(names):
            pairs[name] = names[place[key]]
            place[key] += 1
            mapping.used.update(entries)
    return pairs


@dataclass(frozen=True, slots=True)
class _ModelPlace:
    """One record: its path from the root, and the same with the framework's function that called it, if one did."""

    path: Path
    inner: Path
    state: str


@dataclass(frozen=True, slots=True)
class _Scopes:
    """All records of one run by name, in their order, and the class of each layer by its path."""

    records: Mapping[str, _ModelPlace]
    classes: Mapping[Path, str]

    def class_of(self, path: Path) -> str:
        """Return what a mapping calls the parent at a path: its class, or its name where it was never called."""
        return self.classes.get(path, path[-1]) if path else _TOP


def _read_scopes(dump: Dump, translate: Callable[[str], str]) -> _Scopes:
    """Place every record of a dump. ``translate`` gives the names of APIs that both runs share.

    Raises DumpError where a file next to the dump is damaged.
    """
    surroundings = dump.surroundings
    records: dict[str, _ModelPlace] = {}
    classes: dict[Path, str] = {}
    for name in dump.records:
        if is_module_name(name):
            layer, name_of_class, state = _module(name)
            classes[layer] = name_of_class
            records[name] = _ModelPlace(layer, layer, state)
        else:
            records[name] = _api(name, translate(name), surroundings)
    shifts = _shifts(records, classes)
    if shifts:
        # A class is looked up by the path as it is after the shift.
        classes = {_shifted(path, shifts): kind for path, kind in classes.items()}
        records = {
            name: _ModelPlace(_shifted(placed.path, shifts), _shifted(placed.inner, shifts), placed.state)
            for name, placed in records.items()
        }
    return _Scopes(records, classes)


def _module(name: str) -> tuple[Path, str, str]:
    """Return path, class and state of a module's record."""
    module = split_module(name)
    return tuple(module.path.split(".") if module.path else ()), module.class_name, direction_of(name)


def _api(name: str, translated: str, surroundings: Surroundings) -> _ModelPlace:
    own = shared_name(split_called(translated)[0]).rpartition(".")[2]
    # A backward call is where its forward call is.
    parent = intact(surroundings.parents).of_call(forward_of(name)) or ""
    layer = _module(parent)[0] if is_module_name(parent) else ()
    stack = intact(surroundings.stacks).of_call(name) or ()
    function = "" if name.startswith(("Primitive.", "Jit.")) else _caller(stack)
    path = (*layer, own)
    return _ModelPlace(path, (*layer, function, own) if function else path, direction_of(name))


def _caller(stack: tuple[str, ...]) -> str:
    """Return the framework's outermost function between a call and the layer's forward, empty where there is none."""
    start = max((i for i, line in enumerate(stack) if "Template" in line), default=-1) + 1
    function = ""
    for line in stack[start:]:
        frame = _FRAME.match(line)
        if frame is None or frame["function"] in _FORWARD or not _FRAMEWORK.search(frame["path"]):
            break
        function = "" if any(tool in frame["path"].lower() for tool in _OWN_TOOLS) else frame["function"]
    return "" if function in _NO_SCOPE else function


def _shifts(records: Mapping[str, _ModelPlace], classes: Mapping[Path, str]) -> dict[Path, int]:
    """Return the smallest number below each ``layers`` of a transformer: pipeline stages count their own, or all."""
    roots = {path for path, kind in classes.items() if kind == _RENUMBERED}
    shifts: dict[Path, int] = {}
    if roots:
        for placed in records.values():
            path = placed.path
            for i in range(len(path) - 1):
                if path[i] == "layers" and path[i + 1].isdecimal() and path[:i] in roots:
                    number, at = int(path[i + 1]), path[: i + 1]
                    shifts[at] = min(shifts.get(at, number), number)
    return {path: number for path, number in shifts.items() if number}


def _shifted(path: Path, shifts: Mapping[Path, int]) -> Path:
    words = list(path)
    for i in range(1, len(path)):
        shift = shifts.get(path[:i])
        if shift and words[i].isdecimal():
            words[i] = str(int(words[i]) - shift)
    return tuple(words)


class LongestFirst(Generic[T]):
    """Entries by their words; a look-up takes as long as there are different numbers of words, not entries."""

    def __init__(self, entries: Mapping[Words, T]) -> None:
        self._entries = entries
        self._lengths = sorted({len(words) for words in entries}, reverse=True)

    def at(self, words: Sequence[str], start: int) -> tuple[Words, T] | None:
        """Return the longest entry whose words stand at a place in a name, None where there is none."""
        for length in self._lengths:
            key = tuple(words[start : start + length])
            if len(key) == length and key in self._entries:
                return key, self._entries[key]
        return None

    def within(self, words: Sequence[str]) -> Iterator[Words]:
        """Yield the words of every entry that is anywhere in a name."""
        for length in self._lengths:
            for i in range(len(words) - length + 1):
                key = tuple(words[i : i + length])
                if key in self._entries:
                    yield key
