"""Table ``compositions.yaml`` of MindSpore calls that together are one call of PyTorch's, and the LSTM."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from msprobe_hooks.dump.names import backward_of, split_called
from msprobe_hooks.errors import RecordError
from msprobe_standards.decoding import decode_yaml

if TYPE_CHECKING:
    from msprobe_hooks.dump.call_context import Table
    from msprobe_hooks.dump.reader import Dump


_TABLE = Path(__file__).with_name("compositions.yaml")
# The scope of a kernel, whose last part is its type with a number.
_KERNEL = re.compile(r"Kernel\.(?:.*_)?(?P<type>[A-Za-z0-9]+)-op\d+\.\d+\.\w+")
_CALL = re.compile(r"(?P<side>~?)(?P<word>[\w.]+?)(?::(?P<through>\d+))?(?P<may_be_absent>\??)")

#: PyTorch's name of the call, and the word of MindSpore's.
VF_LSTM, LSTM = "VF.lstm", "LSTM"

_ADD, _VIEW, _CAST, _CONCAT = "Tensor.__add__", "Tensor.view", "Tensor.astype", "Concat"
_BEFORE = frozenset({"Functional.zeros", _ADD, _VIEW, _CAST, _CONCAT})
_BEHIND = frozenset({_VIEW, _CAST})
# How many calls before and behind the kernel may hold what it takes or returns as it was before it was turned.
_NEAR = 30

Body: TypeAlias = dict[str, Any]
#: What a tensor's entry says of its values; the rest is where they are kept, and who asked for gradients.
_VALUES = ("dtype", "shape", "Max", "Min", "Mean", "Norm", "md5")


@dataclass(frozen=True, slots=True)
class Part:
    """One of the calls of a composition; ``through`` is the input by which the tensor comes that goes through all."""

    word: str
    through: int = 0
    is_side: bool = False
    may_be_absent: bool = False


@dataclass(frozen=True, slots=True)
class Argument:
    """Place of an argument of PyTorch's call: an input of a part by its index, or a setting of it by name."""

    word: str
    place: str


@dataclass(frozen=True)
class Composition:
    """One entry of the table. An argument of None has no counterpart; the one that goes through is the first."""

    pytorch: Sequence[str]
    parts: Sequence[Part]
    arguments: Sequence[Argument | None]
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @cached_property
    def anchor(self) -> int:
        """The index of the part that is always there, and whose record represents the whole."""
        return next(i for i, part in enumerate(self.parts) if not part.may_be_absent)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        groups = (f"({re.escape(part.word)} ){'?' if part.may_be_absent else ''}" for part in self.parts)
        return re.compile(rf"(?<!\S){''.join(groups)}")

    def occurrences(self, words: str, calls: Mapping[int, str]) -> Iterator[dict[int, str]]:
        """Yield the call of each part that is there, by the part's index.

        ``words`` are those of the calls in their order, each with a blank behind it; ``calls`` gives the call whose
        word begins at a place.
        """
        for match in self._pattern.finditer(words):
            yield {i: calls[match.start(i + 1)] for i in range(len(self.parts)) if match.start(i + 1) >= 0}

    def name_among(self, apis: Iterable[str]) -> str | None:
        """Return what a run of PyTorch's calls it, None where it calls none of the names."""
        return next((name for name in self.pytorch if name in apis), None)


def word_of(record: str) -> str:
    """Return what the table calls a record: the class of a primitive or the type of a kernel, or an API."""
    kernel = _KERNEL.fullmatch(record)
    if kernel is not None:
        return kernel["type"]
    called = split_called(record)[0]
    return called.rpartition(".")[2] if called.startswith("Primitive.") else called


@cache
def compositions() -> Sequence[Composition]:
    """Return the table."""
    return tuple(
        Composition(
            entry["pytorch"],
            tuple(map(_part, entry["calls"].split())),
            tuple(map(_argument, entry["arguments"].split()[1:])),
            entry.get("settings", {}),
        )
        for entry in decode_yaml(_TABLE.read_bytes())
    )


def _part(text: str) -> Part:
    match = _CALL.fullmatch(text)
    assert match is not None, text
    return Part(match["word"], int(match["through"] or 0), bool(match["side"]), bool(match["may_be_absent"]))


def _argument(text: str) -> Argument | None:
    word, _, place = text.rpartition(".")
    return Argument(word, place) if word else None


class Lstm:
    """The calls that are an LSTM of one layer and one direction: its kernel, and those around it that only pass on."""

    def __init__(self, dump: Dump, record: str, calls: Sequence[str], parents: Table[str | None]) -> None:
        """Find them among the dump's forward calls, given in their order, of which ``record`` is the kernel's."""
        self._dump = dump
        self._record = record
        self._body = body_of(dump, record)
        at = calls.index(record)
        self._neighbours = calls[max(at - _NEAR, 0) : at + _NEAR]
        self._before = self._makers(calls[:at])
        self._behind = self._passing(calls[at + 1 :])
        #: The module that is the layer: its kernel runs in one further in.
        self.home = next((parents.of_call(name) for name in self._behind), None)

    @property
    def records(self) -> set[str]:
        """The records of the calls, forward and backward."""
        forward = {self._record, *self._before, *self._behind}
        return forward | {name for one in forward if (name := backward_of(one)) in self._dump.records}

    @property
    def names_that_go(self) -> set[str]:
        """The APIs of the calls, and their records but for the one whose name the whole has."""
        apis = {split_called(name)[0] for name in (self._record, *self._before, *self._behind)}
        return apis | self.records - {self._record, backward_of(self._record)}

    def bodies(self) -> dict[str, Body]:
        """Return the records of the one call by their names; none where the calls are not those of one layer."""
        weights = self._weights()
        inputs, outputs = _flat_tensors(self._body, "input_args"), _flat_tensors(self._body, "output")
        x = self._turned(inputs[0]) if len(inputs) == 4 else None
        if not weights or x is None or len(outputs) < 3:
            return {}
        settings = settings_of(self._body)
        values = (settings.get(name) for name in ("has_bias", "num_layers"))
        made = [{"type": type(value).__name__, "value": value} for value in values]
        entries = [entry for entry, _ in weights]
        forward = {
            "input_args": [x, inputs[1:3], entries, *made],
            "input_kwargs": {},
            "output": [self._turned(outputs[0]), *outputs[1:3]],
        }
        backward = body_of(self._dump, backward_of(self._record))
        if not backward:
            return {self._record: forward}
        arriving = [each and self._turned(each) for each in tensors_of_group(backward, "input")]
        of_x = [each for each in _flat_tensors(backward, "output") if each["shape"] == inputs[0]["shape"]]
        leaving = [*map(self._turned, of_x), *(gradient for _, gradient in weights)]
        return {self._record: forward, backward_of(self._record): {"input": arriving[:3], "output": leaving}}

    def _makers(self, calls: Sequence[str]) -> dict[str, Body]:
        """Return the calls right before the kernel that made what it takes besides its input, the last one first."""
        wanted = _flat_tensors(self._body, "input_args")[1:]
        found: dict[str, Body] = {}
        for name in reversed(calls):
            body = body_of(self._dump, name)
            outputs = _flat_tensors(body, "output")
            if word_of(name) not in _BEFORE or not any(are_one(one, each) for one in outputs for each in wanted):
                break
            found[name] = body
            wanted += _flat_tensors(body, "input_args")
        return found

    def _passing(self, calls: Sequence[str]) -> dict[str, Body]:
        """Return the calls right behind the kernel that give on what it returned, with time and batch turned or not."""
        outputs = _flat_tensors(self._body, "output")
        found: dict[str, Body] = {}
        for name in calls:
            body = body_of(self._dump, name)
            taken, given = (next(iter(_flat_tensors(body, group)), None) for group in ("input_args", "output"))
            is_passed = word_of(name) in _BEHIND and taken and given and taken["shape"] == given["shape"]
            if not is_passed or not any(are_one(taken, one) or _are_turned(taken, one) for one in outputs):
                break
            found[name] = body
        return found

    @property
    def _is_turned(self) -> bool:
        outputs = _flat_tensors(self._body, "output")[:1]
        taken = [_flat_tensors(body, "input_args")[0] for body in self._behind.values()]
        return any(_are_turned(one, y) for y in outputs for one in taken)

    def _turned(self, entry: Any) -> Any:
        """Return an entry with time and batch as the layer has them, None where no recording holds its elements so."""
        shape = _turned_shape(entry)
        if not self._is_turned or shape is None:
            return entry
        plain = None if "data_name" in entry or "md5" in entry else {**entry, "shape": shape}
        return next((each for each in self._around if _are_turned(each, entry)), plain)

    @cached_property
    def _around(self) -> list[Any]:
        """The tensors of the calls before and behind the kernel, forward and backward."""
        records = [each for name in self._neighbours for each in (name, backward_of(name))]
        groups = ("input_args", "input", "output")
        return [one for name in records for group in groups for one in _flat_tensors(body_of(self._dump, name), group)]

    def _weights(self) -> list[tuple[Any, Any]]:
        """Return the weights and biases as PyTorch takes them, each with its gradient; none where they are unknown."""
        found: list[tuple[Any, Any]] = []
        parts = self._makers_of(_CONCAT)
        for part in _flat_tensors(parts[0][1], "input_args") if len(parts) == 1 else []:
            viewed = next((each for each in self._makers_of(_VIEW) if _made(each[1], part)), None)
            taken = _flat_tensors(viewed[1], "input_args") if viewed else []
            if viewed is None or not taken:
                return []
            added = next((each for each in self._makers_of(_ADD) if _made(each[1], taken[0])), None)
            name, body = added or viewed
            own = _flat_tensors(body, "input_args")
            gradients = _flat_tensors(body_of(self._dump, backward_of(name)), "output")
            found += zip(own, [*gradients, *[None] * len(own)], strict=False)
        return found

    def _makers_of(self, word: str) -> list[tuple[str, Body]]:
        return [(name, body) for name, body in self._before.items() if word_of(name) == word]


def _made(body: Body, entry: Any) -> bool:
    return any(are_one(one, entry) for one in _flat_tensors(body, "output"))


def _turned_shape(entry: Any) -> list[Any] | None:
    shape = entry["shape"]
    return [shape[1], shape[0], shape[2]] if isinstance(shape, list) and len(shape) == 3 else None


def _are_turned(one: Any, other: Any) -> bool:
    """Return whether two entries are of one tensor with time and batch turned, as far as its extremes show."""
    turned = _turned_shape(other)
    if turned is None or one["shape"] != turned:
        return False
    return all(key in one and str(one[key]) == str(other.get(key)) for key in ("dtype", "Max", "Min"))


def body_of(dump: Dump, record: str) -> Body:
    """Return what a record says; nothing where there is none, or it is malformed."""
    if record not in dump.records:
        return {}
    try:
        body = dump.body(record)
    except RecordError:
        return {}
    return body if isinstance(body, dict) else {}


def tensors_of_group(body: Body, group: str) -> list[Any]:
    """Return the members of a group that may be tensors; what has another form is none."""
    members = body.get(group)
    return [one if is_tensor(one) else None for one in members] if isinstance(members, list) else []


def _flat_tensors(body: Body, group: str) -> list[Any]:
    """Return the tensors of a group, those in its lists among them."""
    members = body.get(group)
    return list(_tensors_in(members)) if isinstance(members, list) else []


def _tensors_in(members: list[Any]) -> Iterator[Any]:
    for one in members:
        if isinstance(one, list):
            yield from _tensors_in(one)
        elif is_tensor(one):
            yield one


def settings_of(body: Body) -> Mapping[str, Any]:
    """Return what a primitive was made with, as far as it was recorded."""
    details = body.get("details")
    settings = details.get("settings") if isinstance(details, dict) else None
    return settings if isinstance(settings, dict) else {}


def is_tensor(element: Any) -> bool:
    """Return whether an element is the entry of a tensor."""
    return isinstance(element, dict) and "shape" in element


def are_one(one: Any, other: Any) -> bool:
    """Return whether two entries are of tensors of one shape with equal values, as far as was recorded."""
    if not (is_tensor(one) and is_tensor(other)):
        return False
    # As texts: NaN is the same as NaN.
    return all(str(one.get(key)) == str(other.get(key)) for key in _VALUES)
