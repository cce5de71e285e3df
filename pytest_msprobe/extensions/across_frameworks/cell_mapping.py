"""Cell mapping: names of MindSpore's cells in PyTorch, and calls of MindSpore's composed to one of PyTorch's."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from msprobe_hooks.dump.call_context import KnownSurroundings
from msprobe_hooks.dump.names import backward_of, is_forward_api, is_module_name, split_called
from msprobe_hooks.dump.reader import Dump
from pytest_msprobe.extensions.across_frameworks.fusion_table import (
    LSTM,
    VF_LSTM,
    Argument,
    Body,
    Composition,
    Lstm,
    are_one,
    body_of,
    compositions,
    is_tensor,
    settings_of,
    tensors_of_group,
    word_of,
)
from pytest_msprobe.extensions.across_frameworks.layer_mapping import LongestFirst
from pytest_msprobe.modes.compare.matching.reordering import intact
from pytest_msprobe.yaml_with_lines import Section, read_document

if TYPE_CHECKING:
    from pathlib import Path

    from msprobe_hooks.dump.call_context import Surroundings, Table

_EXAMPLE = "fc2.Dense: fc2.Linear"


@dataclass(frozen=True)
class CellMapping:
    """``{path.Class of a cell: path.Class of the module}``; a key may be any run of whole words of a cell's name."""

    names: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def _by_words(self) -> LongestFirst[list[str]]:
        return LongestFirst({tuple(key.split(".")): other.split(".") for key, other in self.names.items()})

    def translate(self, record: str, kind: str) -> str:
        """Return what the golden run calls a module's record, whose first word there is ``kind``."""
        called, rest = split_called(record)
        name = called.partition(".")[2]
        mapped = self.names.get(name)
        if mapped is None:
            mapped = ".".join(self._replaced(name.split(".")))
        return f"{kind}.{mapped}{rest}"

    def _replaced(self, words: list[str]) -> list[str]:
        """Replace the first run of words that a key names, the longest key first."""
        for i in range(len(words)):
            found = self._by_words.at(words, i)
            if found is not None:
                key, other = found
                return [*words[:i], *other, *words[i + len(key) :]]
        return words

    def without_effect(self, records: Iterable[str]) -> list[str]:
        """Return the keys that no module's record has, in the file's order."""
        names = {split_called(record)[0] for record in records if is_module_name(record)}
        found = {key for name in names for key in self._by_words.within(name.split(".")[1:])}
        return [key for key in self.names if tuple(key.split(".")) not in found]


def read_cells(source: Path | Section) -> CellMapping:
    """Read a file. Raises OptionError that names file, line and remedy."""
    names: dict[str, str] = {}
    lines: dict[str, str] = {}
    document = read_document(source, _EXAMPLE)
    for key, part, value in document.items(f"not a cell mapping; it maps names of layers, as in  {_EXAMPLE}"):
        names[key] = value.text("a module's name and class such as fc2.Linear")
        lines[key] = part.place
    return CellMapping(names, lines)


@dataclass(frozen=True)
class Composed:
    """A dump with calls made one; ``names`` gives PyTorch's name of each record made of several."""

    dump: Dump
    names: Mapping[str, str]


def compose(dump: Dump, apis: Collection[str], named: Collection[str] = ()) -> Composed:
    """Make one call of those that PyTorch's run, which has the ``apis``, makes as one.

    ``dump`` is MindSpore's. ``named`` are the records and APIs that a user's file is about: what would go with them
    stays as it is.
    """
    names: dict[str, str] = {}
    bodies: dict[str, Body] = {}
    homes: dict[str, str | None] = {}
    gone: set[str] = set()
    for name, whole in _wholes(dump, apis):
        members = whole.records
        if members.isdisjoint(gone) and whole.names_that_go.isdisjoint(named):
            made = whole.bodies()
            bodies |= made
            names |= {record: f"{name}{split_called(record)[1]}" for record in made}
            gone |= members if made else set()
            homes |= dict.fromkeys(made, whole.home) if whole.home else {}
    if not bodies:
        return Composed(dump, {})
    records = {
        name: Raw(json.dumps(bodies[name]).encode()) if name in bodies else raw
        for name, raw in dump.records.items()
        if name in bodies or name not in gone
    }
    composed = replace(dump, records=records)
    return Composed(_moved(composed, homes) if homes else composed, names)


@dataclass(frozen=True)
class _Moved(Dump):
    """A dump some of whose calls are in other modules than the files next to it say."""

    known: Surroundings

    @property
    def surroundings(self) -> Surroundings:
        """Return what the files say of the others."""
        return self.known


def _moved(dump: Dump, homes: Mapping[str, str | None]) -> Dump:
    said = dump.surroundings
    parents = replace(said.parents, entries={**said.parents.entries, **homes})
    around = KnownSurroundings(dump.path.parent, parents, said.stacks, said.micro_steps)
    return _Moved(dump.path, dump.task, dump.level, dump.framework, dump.records, around)


def _wholes(dump: Dump, apis: Collection[str]) -> Iterator[tuple[str, _Whole | Lstm]]:
    """Yield calls that may be one, with the name of that one call of PyTorch's."""
    wanted = [(one, name) for one in compositions() if (name := one.name_among(apis))]
    if not wanted and VF_LSTM not in apis:
        return
    calls = [name for name in dump.records if is_forward_api(name)]
    parents = intact(dump.surroundings.parents)
    if VF_LSTM in apis:
        yield from ((VF_LSTM, Lstm(dump, call, calls, parents)) for call in calls if word_of(call) == LSTM)
    words, at = _words(calls)
    for composition, name in wanted:
        for found in composition.occurrences(words, at):
            yield name, _Whole(dump, composition, found, parents)


def _words(calls: list[str]) -> tuple[str, dict[int, str]]:
    words: list[str] = []
    at: dict[int, str] = {}
    place = 0
    for call in calls:
        at[place] = call
        words.append(f"{word_of(call)} ")
        place += len(words[-1])
    return "".join(words), at


class _Whole:
    """The calls that may be one: those of them through which a tensor goes, and those at its side."""

    def __init__(
        self, dump: Dump, composition: Composition, found: Mapping[int, str], parents: Table[str | None]
    ) -> None:
        self._dump = dump
        self._composition = composition
        self._anchor = found[composition.anchor]
        home = parents.of_call(self._anchor)
        found = {i: record for i, record in found.items() if parents.of_call(record) == home}
        self._calls = {i: body_of(dump, record) for i, record in found.items()}
        self._chain = self._linked([i for i in found if not composition.parts[i].is_side])
        others = [i for i in found if composition.parts[i].is_side and self._shares_a_tensor(i)]
        self._found = {i: found[i] for i in [*self._chain, *others]}
        #: The module of the whole where that is another one than its record's.
        self.home: str | None = None

    @property
    def records(self) -> set[str]:
        """The records of the calls, forward and backward."""
        forward = set(self._found.values())
        return forward | {name for one in forward if (name := backward_of(one)) in self._dump.records}

    @property
    def names_that_go(self) -> set[str]:
        """The APIs of the calls, and their records but for the one whose name the whole has."""
        apis = {split_called(record)[0] for record in self._found.values()}
        return apis | self.records - {self._anchor, backward_of(self._anchor)}

    def bodies(self) -> dict[str, Body]:
        """Return the records of the one call by their names; none where the calls are not what the table says."""
        if not self._chain or not self._has_its_settings:
            return {}
        first, last = self._chain[0], self._chain[-1]
        through = tensors_of_group(self._calls[first], "input_args")[self._composition.parts[first].through]
        arguments = [through, *(self._value(argument) for argument in self._composition.arguments)]
        forward = {
            "input_args": arguments,
            "input_kwargs": {},
            "output": tensors_of_group(self._calls[last], "output")[:1],
        }
        backward = backward_of(self._anchor)
        if backward not in self._dump.records:
            return {self._anchor: forward}
        bodies = {i: self._backward(i) for i in self._chain}
        arrived = next((tensors_of_group(body, "input") for body in reversed(bodies.values()) if body), [])
        gradients = {i: self._gradients(i, body) for i, body in bodies.items()}
        places = [(first, self._composition.parts[first].through), *map(self._place, self._composition.arguments)]
        leaving = [gradients[place[0]].get(place[1]) for place in places if place is not None]
        return {self._anchor: forward, backward: {"input": arrived[:1], "output": leaving}}

    @property
    def _has_its_settings(self) -> bool:
        known = {self._composition.parts[i].word: settings_of(self._calls[i]) for i in self._chain}
        return all(
            known.get(word, {}).get(name, value) == value
            for word, settings in self._composition.settings.items()
            for name, value in settings.items()
        )

    def _linked(self, chain: list[int]) -> list[int]:
        """Return the calls around the anchor of which each one takes what the one before it returned."""
        linked = [are_one(self._returned(i), self._taken(following)) for i, following in pairwise(chain)]
        start = stop = chain.index(self._composition.anchor)
        if self._returned(chain[start]) is None or self._taken(chain[start]) is None:
            return []
        while start and linked[start - 1]:
            start -= 1
        while stop < len(linked) and linked[stop]:
            stop += 1
        return chain[start : stop + 1]

    def _taken(self, i: int) -> Any:
        inputs, through = tensors_of_group(self._calls[i], "input_args"), self._composition.parts[i].through
        return inputs[through] if through < len(inputs) else None

    def _returned(self, i: int) -> Any:
        return next(iter(tensors_of_group(self._calls[i], "output")), None)

    def _shares_a_tensor(self, i: int) -> bool:
        own = [*tensors_of_group(self._calls[i], "input_args"), *tensors_of_group(self._calls[i], "output")]
        others = [
            tensor
            for link in self._chain
            for group in ("input_args", "output")
            for tensor in tensors_of_group(self._calls[link], group)
        ]
        return any(are_one(one, other) for one in own for other in others)

    def _place(self, argument: Argument | None) -> tuple[int, int] | None:
        """Return the call that an argument is an input of, and which one; None where it is none."""
        if argument is None or not argument.place.isdigit():
            return None
        return next(
            ((i, int(argument.place)) for i in self._chain if self._composition.parts[i].word == argument.word), None
        )

    def _value(self, argument: Argument | None) -> Any:
        if argument is not None and not argument.place.isdigit():
            settings = (
                settings_of(self._calls[i]) for i in self._chain if self._composition.parts[i].word == argument.word
            )
            value = next(settings, {}).get(argument.place)
            return None if value is None else {"type": type(value).__name__, "value": value}
        place = self._place(argument)
        inputs = [] if place is None else tensors_of_group(self._calls[place[0]], "input_args")
        return inputs[place[1]] if place is not None and place[1] < len(inputs) else None

    def _backward(self, i: int) -> Body:
        name = backward_of(self._found[i])
        return body_of(self._dump, name) if name in self._dump.records else {}

    def _gradients(self, i: int, body: Body) -> dict[int, Any]:
        """Return the gradients of a call by the index of the input; msprobe lists them from the last to the first."""
        inputs = [(at, one) for at, one in enumerate(tensors_of_group(self._calls[i], "input_args")) if is_tensor(one)]
        asked = [(at, one) for at, one in inputs if one.get("requires_grad")] or inputs
        gradients = tensors_of_group(body, "output")
        for candidates in (asked, inputs, asked[::-1], inputs[::-1]):
            fits = len(candidates) == len(gradients) and all(
                gradient is None or gradient.get("shape") == one.get("shape")
                for (_, one), gradient in zip(candidates, gradients, strict=True)
            )
            if fits:
                return {at: gradient for (at, _), gradient in zip(candidates, gradients, strict=True)}
        return {}
