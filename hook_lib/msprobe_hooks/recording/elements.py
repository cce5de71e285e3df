"""Elements of records: the JSON that a Python value becomes.

Spelled as msprobe spells it. What that spelling loses (that a list was a tuple, a namedtuple's class, a complex number,
a positional dtype) is kept in the record's ``details``: path of the element, such as ``input.1``, to what it
was.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

import numpy as np
from msgspec import UnsetType

from msprobe_hooks.dump.writer import json_number
from msprobe_hooks.recording.tensor_entry import Copied, number_storages, own
from msprobe_hooks.recording.tensor_entry import TensorEntry as TensorEntry

# Each level takes three Python frames, and the program that is recorded needs its own.
_MAX_DEPTH = 100


#: What a framework answers for a value that is none of its own.
NOT_OWN: Any = object()

Summarise = Callable[[Any, TensorEntry], None]
Save = Callable[[Any, str], str | UnsetType]
Shared = Callable[[Any, list[int]], TensorEntry]


class ElementBuilder(Protocol):
    """Builder of the elements of one record from Python values, at once or when the record is written.

    ``details`` is what JSON loses of them.
    """

    details: dict[str, Any]

    def sequence(self, values: Any, path: str, /) -> object:
        """Take positional values; ``path`` starts the paths of their elements."""

    def mapping(self, values: Mapping[str, Any], category: str, /) -> object:
        """Take named values."""

    def output(self, value: Any, /) -> object:
        """Take what a call returned."""

    def single(self, value: Any, path: str, /) -> object:
        """Take one value, whose element has the path itself."""

    def number_storages(self, record: dict[str, Any], /) -> None:
        """Note which of the tensors that were taken so far lie in one storage; the record has no others."""


class Elements(ABC):
    """Builds the elements of one record; a framework says what its own values become.

    ``summarise`` fills a tensor's entry with what is collected of its values; ``save`` (or None) stores the values and
    returns the name of their file, which ends in ``suffix``, or UNSET where there is none yet. Where nothing is stored,
    ``shared`` may give the entry that all records of a tensor have while it does not change, and ``copied`` one like it
    that is a record's own.
    """

    __slots__ = ("_copied", "_save", "_shared", "_storages", "_summarise", "details", "name")

    tensor_class: ClassVar[type]
    suffix: ClassVar[str]

    def __init__(
        self,
        name: str,
        summarise: Summarise,
        save: Save | None,
        shared: Shared | None = None,
        copied: Copied = own,
    ) -> None:
        self.name = name
        self.details: dict[str, Any] = {}
        self._summarise = summarise
        self._save = save
        self._shared = shared
        self._copied = copied
        # What the storages of tensors are known by, in the order of their entries; 0 where that is unknown.
        self._storages: list[int] = []

    def sequence(self, values: Any, path: str, depth: int = 0) -> list[Any]:
        """Return the elements of positional values; ``path`` starts theirs."""
        shared, tensor_class, storages = self._shared, self.tensor_class, self._storages
        if shared is None:
            return [self.element(value, f"{path}.{place}", depth) for place, value in enumerate(values)]
        # Most values are tensors, and a path is of use to files and details alone.
        return [
            shared(value, storages)
            if isinstance(value, tensor_class)
            else self.element(value, f"{path}.{place}", depth)
            for place, value in enumerate(values)
        ]

    def mapping(self, values: Mapping[str, Any], category: str) -> dict[str, Any]:
        """Return the elements of named values."""
        return {key: self._named(key, value, f"{category}.{key}") for key, value in values.items()}

    def output(self, value: Any) -> list[Any]:
        """Return the elements of what a call returned: a tuple's or list's, or the single one."""
        if isinstance(value, (tuple, list)):
            self._note_container(value, "output")
            return self.sequence(value, "output")
        return self.sequence((value,), "output")

    def single(self, value: Any, path: str) -> list[Any]:
        """Return the one element of a value, in a list."""
        return [self.element(value, path)]

    def number_storages(self, record: dict[str, Any]) -> None:
        """Write into the entries which of the tensors that were taken so far lie in one storage."""
        storages = self._storages
        if len({*storages}) < len(storages):
            number_storages(record, storages, self._copied)
        storages.clear()

    def whole(self, value: Any) -> Any:
        """Return what a record that is one value becomes; tensors inside are filed under their place alone."""
        if isinstance(value, Mapping):
            return {str(key): self.element(item, str(key)) for key, item in value.items()}
        if isinstance(value, (tuple, list)):
            return [self.element(item, str(place)) for place, item in enumerate(value)]
        return self.element(value, "")

    def element(self, value: Any, path: str, depth: int = 0) -> Any:
        """Return what one value becomes in JSON."""
        kind = type(value)
        if kind in _SCALARS:
            return {"type": kind.__name__, "value": json_number(value)}
        if value is None:
            return None
        if isinstance(value, self.tensor_class):
            return self._tensor(value, path)
        if kind is tuple or kind is list:
            if kind is tuple:
                self.details[path] = {"container": "tuple"}
            return self._nested(value, path, depth)
        return self._rare(value, path, depth)

    @abstractmethod
    def describe(self, tensor: Any) -> TensorEntry:
        """Return a tensor's entry without its values; note what its storage is known by, where that is known."""

    @abstractmethod
    def own(self, value: Any, path: str) -> Any:
        """Return what a value of the framework's own types becomes, NOT_OWN for any other."""

    def named(self, key: Any, value: Any) -> Any:
        """Return what the name of an argument makes of its value, NOT_OWN where it makes nothing of it."""
        return NOT_OWN

    def _tensor(self, tensor: Any, path: str) -> TensorEntry:
        if self._shared is not None:
            return self._shared(tensor, self._storages)
        entry = self.describe(tensor)
        self._summarise(tensor, entry)
        if self._save is not None:
            name = f"{self.name}{'.' if path else ''}{path}{self.suffix}"
            # Names that users give, to variables and in dicts, may hold what no file's name does.
            entry.data_name = self._save(tensor, name.replace("/", "%2F").replace("\0", "%00"))
        return entry

    def _nested(self, values: Any, path: str, depth: int) -> Any:
        if depth >= _MAX_DEPTH:
            self.details[path] = {"nested_deeper_than": _MAX_DEPTH}
            return None
        return self.sequence(values, path, depth + 1)

    def _named(self, key: Any, value: Any, path: str, depth: int = 0) -> Any:
        named = self.named(key, value)
        return self.element(value, path, depth) if named is NOT_OWN else named

    def _note_container(self, value: Any, path: str) -> None:
        if type(value) is tuple:
            self.details[path] = {"container": "tuple"}
        elif type(value) is not list:
            self.details[path] = {"container": f"{type(value).__module__}.{type(value).__qualname__}"}

    def _rare(self, value: Any, path: str, depth: int) -> Any:
        own = self.own(value, path)
        if own is not NOT_OWN:
            return own
        for types, convert in _CONVERSIONS:
            if isinstance(value, types):
                return convert(value)
        if isinstance(value, complex):
            self.details[path] = {"type": "complex", "value": [json_number(value.real), json_number(value.imag)]}
            return None
        if isinstance(value, np.ndarray):
            return _array(value)
        if isinstance(value, np.generic):
            return {"type": type(value).__name__, "value": json_number(value.item())}
        return self._container(value, path, depth)

    def _container(self, value: Any, path: str, depth: int) -> Any:
        items = _items(value)
        if items is not None:
            if type(value) is not dict:
                self._note_container(value, path)
            if depth >= _MAX_DEPTH:
                self.details[path] = {"nested_deeper_than": _MAX_DEPTH}
                return None
            return {str(k): self._named(k, v, f"{path}.{k}", depth + 1) for k, v in items}
        if isinstance(value, (tuple, list, set, frozenset)):
            self._note_container(value, path)
            return self._nested(value, path, depth)
        self.details[path] = {"type": f"{type(value).__module__}.{type(value).__qualname__}"}
        return None


def _items(value: Any) -> list[tuple[Any, Any]] | None:
    # The output classes of transformers are dataclasses and mappings; as mappings they leave out what is None.
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=True))
    return None


_SCALARS = frozenset({int, float, bool, str})


def _slice(value: slice) -> dict[str, Any]:
    return {"type": "slice", "value": [_as_int(end) for end in (value.start, value.stop, value.step)]}


def _as_int(value: Any) -> int | None:
    try:
        return None if value is None else int(value)
    except (TypeError, ValueError, RuntimeError):
        return None


_CONVERSIONS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (slice, _slice),
    (type(...), lambda _: {"type": "ellipsis", "value": "..."}),
    (enum.Enum, lambda value: {"type": type(value).__name__, "value": value.name}),
    (bool, lambda value: {"type": "bool", "value": bool(value)}),
    (int, lambda value: {"type": "int", "value": int(value)}),
    (str, lambda value: {"type": "str", "value": str(value)}),
)


def _array(value: np.ndarray[Any, Any]) -> dict[str, Any]:
    entry = {"type": "numpy.ndarray", "dtype": str(value.dtype), "shape": list(value.shape)}
    numbers: tuple[Any, ...] = (None,) * 4
    if value.size and value.dtype.kind in "biuf":
        flat = value.astype(np.float64)
        numbers = (value.max().item(), value.min().item(), flat.mean().item(), math.sqrt((flat * flat).sum().item()))
    return entry | {
        key: json_number(number) for key, number in zip(("Max", "Min", "Mean", "Norm"), numbers, strict=True)
    }
