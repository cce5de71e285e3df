"""Layer mapping: only what the layers of two runs are called differently is written down, all else follows from it.

A file says, for a class of the target's layers, what a child is called in the golden run. Each record of the target is
followed from the root of its model; where the golden model has calls at the place that this leads to, the n-th call of
one is the n-th of the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path as File
from typing import TYPE_CHECKING

from msprobe_hooks.dump.paths.recording import CONSTRUCT_FILE
from msprobe_hooks.errors import DumpError
from pytest_msprobe.extensions.across_frameworks.longest_prefix import LongestFirst
from pytest_msprobe.extensions.across_frameworks.scopes import TOP, ModelPlace, Path, Scopes, read_scopes
from pytest_msprobe.modes.compare.matching.reordering import intact
from pytest_msprobe.yaml_with_lines import Section, read_document

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump

_EXAMPLE = "TopLayer: {network_with_loss: module}"
_OLD_TOP = "Cell"


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
        name = TOP if parent == _OLD_TOP else parent
        if name in children:
            raise key.refuse(f"{_OLD_TOP!r} is an older word for {TOP!r}, and both are there; delete one")
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
    scopes, others = read_scopes(target, target_names), read_scopes(golden, golden_names)
    partners: dict[str, str] = {}
    # Frameworks call from functions of their own that the other may not have: what these leave over goes by layer.
    for path_of in (_inner, _outer):
        partners |= _by_place(scopes, others, mapping, path_of, partners)
    return partners


def _inner(placed: ModelPlace) -> Path:
    return placed.inner


def _outer(placed: ModelPlace) -> Path:
    return placed.path


def _by_place(
    scopes: Scopes,
    others: Scopes,
    mapping: LayerMapping,
    path_of: Callable[[ModelPlace], Path],
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
