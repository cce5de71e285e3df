"""A run of MindSpore with several of its calls made one, where the run of PyTorch beside it makes one call of them.

The one call has the name of the record that does the work (the matrix product of a dense layer), the arguments of
PyTorch's function, and what the last of them returns. Tensors tell which calls belong together: what one returns is
what the next one takes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Raw

from msprobe_hooks.dump.names import backward_of, is_forward_api, split_called
from msprobe_hooks.errors import RecordError
from pytest_msprobe.modes.compare.across.compositions import Argument, Composition, compositions, word_of
from pytest_msprobe.modes.compare.structure import intact

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from msprobe_hooks.dump.scopes import Table

Body: TypeAlias = dict[str, Any]
#: What a tensor's entry says of its values; the rest is where they are kept, and who asked for gradients.
_VALUES = ("dtype", "shape", "Max", "Min", "Mean", "Norm", "md5")


@dataclass(frozen=True)
class Composed:
    """A dump with calls made one; ``names`` gives PyTorch's name of each record that stands for several."""

    dump: Dump
    names: Mapping[str, str]


def compose(dump: Dump, apis: Collection[str], named: Collection[str] = ()) -> Composed:
    """Make one call of those that PyTorch's run, which has the ``apis``, makes as one.

    ``dump`` is MindSpore's. ``named`` are the records and APIs that a user's file is about: what would go with them
    stays as it is.
    """
    wanted = [(one, name) for one in compositions() if (name := one.name_among(apis))]
    if not wanted:
        return Composed(dump, {})
    parents = intact(dump.surroundings.parents)
    words, at = _words([name for name in dump.records if is_forward_api(name)])
    names: dict[str, str] = {}
    bodies: dict[str, Body] = {}
    gone: set[str] = set()
    for composition, name in wanted:
        for found in composition.occurrences(words, at):
            whole = _Whole(dump, composition, found, parents)
            members = whole.records
            if members.isdisjoint(gone) and whole.names_that_go.isdisjoint(named):
                made = whole.bodies()
                bodies |= made
                names |= {record: f"{name}{split_called(record)[1]}" for record in made}
                gone |= members if made else set()
    records = {
        name: Raw(json.dumps(bodies[name]).encode()) if name in bodies else raw
        for name, raw in dump.records.items()
        if name in bodies or name not in gone
    }
    return Composed(replace(dump, records=records), names)


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
    """The calls that may be one: those of them through which a tensor goes, and those beside."""

    def __init__(
        self, dump: Dump, composition: Composition, found: Mapping[int, str], parents: Table[str | None]
    ) -> None:
        self._dump = dump
        self._composition = composition
        self._anchor = found[composition.anchor]
        home = parents.of_call(self._anchor)
        found = {i: record for i, record in found.items() if parents.of_call(record) == home}
        self._calls = {i: _body(dump, record) for i, record in found.items()}
        self._chain = self._linked([i for i in found if not composition.parts[i].is_beside])
        beside = [i for i in found if composition.parts[i].is_beside and self._shares_a_tensor(i)]
        self._found = {i: found[i] for i in [*self._chain, *beside]}

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
        through = _tensors(self._calls[first], "input_args")[self._composition.parts[first].through]
        arguments = [through, *(self._value(argument) for argument in self._composition.arguments)]
        forward = {"input_args": arguments, "input_kwargs": {}, "output": _tensors(self._calls[last], "output")[:1]}
        backward = backward_of(self._anchor)
        if backward not in self._dump.records:
            return {self._anchor: forward}
        bodies = {i: self._backward(i) for i in self._chain}
        arrived = next((_tensors(body, "input") for body in reversed(bodies.values()) if body), [])
        gradients = {i: self._gradients(i, body) for i, body in bodies.items()}
        places = [(first, self._composition.parts[first].through), *map(self._place, self._composition.arguments)]
        leaving = [gradients[place[0]].get(place[1]) for place in places if place is not None]
        return {self._anchor: forward, backward: {"input": arrived[:1], "output": leaving}}

    @property
    def _has_its_settings(self) -> bool:
        known = {self._composition.parts[i].word: _settings(self._calls[i]) for i in self._chain}
        return all(
            known.get(word, {}).get(name, value) == value
            for word, settings in self._composition.settings.items()
            for name, value in settings.items()
        )

    def _linked(self, chain: list[int]) -> list[int]:
        """Return the calls around the anchor of which each one takes what the one before it returned."""
        linked = [_are_one(self._returned(i), self._taken(following)) for i, following in pairwise(chain)]
        start = stop = chain.index(self._composition.anchor)
        if self._returned(chain[start]) is None or self._taken(chain[start]) is None:
            return []
        while start and linked[start - 1]:
            start -= 1
        while stop < len(linked) and linked[stop]:
            stop += 1
        return chain[start : stop + 1]

    def _taken(self, i: int) -> Any:
        inputs, through = _tensors(self._calls[i], "input_args"), self._composition.parts[i].through
        return inputs[through] if through < len(inputs) else None

    def _returned(self, i: int) -> Any:
        return next(iter(_tensors(self._calls[i], "output")), None)

    def _shares_a_tensor(self, i: int) -> bool:
        own = [*_tensors(self._calls[i], "input_args"), *_tensors(self._calls[i], "output")]
        others = [
            tensor
            for link in self._chain
            for group in ("input_args", "output")
            for tensor in _tensors(self._calls[link], group)
        ]
        return any(_are_one(one, other) for one in own for other in others)

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
                _settings(self._calls[i]) for i in self._chain if self._composition.parts[i].word == argument.word
            )
            value = next(settings, {}).get(argument.place)
            return None if value is None else {"type": type(value).__name__, "value": value}
        place = self._place(argument)
        inputs = [] if place is None else _tensors(self._calls[place[0]], "input_args")
        return inputs[place[1]] if place is not None and place[1] < len(inputs) else None

    def _backward(self, i: int) -> Body:
        name = backward_of(self._found[i])
        return _body(self._dump, name) if name in self._dump.records else {}

    def _gradients(self, i: int, body: Body) -> dict[int, Any]:
        """Return the gradients of a call by the index of the input; msprobe lists them from the last to the first."""
        inputs = [(at, one) for at, one in enumerate(_tensors(self._calls[i], "input_args")) if _is_tensor(one)]
        asked = [(at, one) for at, one in inputs if one.get("requires_grad")] or inputs
        gradients = _tensors(body, "output")
        for candidates in (asked, inputs, asked[::-1], inputs[::-1]):
            fits = len(candidates) == len(gradients) and all(
                gradient is None or gradient.get("shape") == one.get("shape")
                for (_, one), gradient in zip(candidates, gradients, strict=True)
            )
            if fits:
                return {at: gradient for (at, _), gradient in zip(candidates, gradients, strict=True)}
        return {}


def _body(dump: Dump, record: str) -> Body:
    try:
        body = dump.body(record)
    except RecordError:
        return {}
    return body if isinstance(body, dict) else {}


def _tensors(body: Body, group: str) -> list[Any]:
    """Return the members of a group that may be tensors; what has another form is none."""
    members = body.get(group)
    return [one if _is_tensor(one) else None for one in members] if isinstance(members, list) else []


def _is_tensor(element: Any) -> bool:
    return isinstance(element, dict) and "shape" in element


def _are_one(one: Any, other: Any) -> bool:
    """Tell whether two entries are of tensors of one shape with equal values, as far as was recorded."""
    if not (_is_tensor(one) and _is_tensor(other)):
        return False
    # As texts: NaN is the same as NaN.
    return all(str(one.get(key)) == str(other.get(key)) for key in _VALUES)


def _settings(body: Body) -> Mapping[str, Any]:
    details = body.get("details")
    settings = details.get("settings") if isinstance(details, dict) else None
    return settings if isinstance(settings, dict) else {}
