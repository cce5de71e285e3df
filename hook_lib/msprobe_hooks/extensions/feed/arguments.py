"""The arguments of a call with recorded tensors in the place of the program's, whatever they are nested in."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, TypeAlias

from msprobe_hooks.dump.schema import Element, ForwardRecord, MappingElement, TensorElement, ValueElement
from msprobe_hooks.messages import shown

#: Gives the recorded tensor in the form of the program's, for a place in the call. Raises FeedError, DumpError.
ReplaceTensor: TypeAlias = Callable[[Any, TensorElement, str], Any]


class KeptError(Exception):
    """A tensor of the program is kept; the text says why."""


_MISSING: Any = object()
_SCALARS = (bool, int, float, str)


class Arguments:
    """Replaces the tensors among the arguments of one call.

    Args:
        label: What the call is named in notes.
        tensor_class: The class of the framework's tensors.
        replace: Gives the recorded tensor of a place.
        kept: Counts what the program keeps of its own, with the reason.
    """

    def __init__(self, label: str, tensor_class: type, replace: ReplaceTensor, unfed: Counter[str]) -> None:
        self._label = label
        self._tensor_class = tensor_class
        self._replace = replace
        self._kept = unfed
        #: The places that were fed, such as ``input.0`` and ``kwargs.mask``.
        self.places: list[str] = []

    def fed(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], record: ForwardRecord, names: Sequence[str]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of the call with the recorded tensors; ``names`` are those of positional ones.

        An argument finds its recorded one by its name where one run passed it by position and the other by name.
        """
        used = set[str]()

        def recorded(place: str, name: str | None) -> Any:
            by_place = {f"input.{i}": element for i, element in enumerate(record.args)}
            by_place |= {f"kwargs.{key}": element for key, element in record.kwargs.items()}
            others = [] if name is None else [f"kwargs.{name}"]
            if name is not None and name in names:
                others.append(f"input.{names.index(name)}")
            for candidate in (place, *others):
                if candidate in by_place and candidate not in used:
                    used.add(candidate)
                    return by_place[candidate]
            return _MISSING

        new_args = []
        for i, value in enumerate(args):
            name = names[i] if i < len(names) else None
            new_args.append(self._value(value, recorded(f"input.{i}", name), f"input.{i}"))
        new_kwargs = {
            key: self._value(value, recorded(f"kwargs.{key}", key), f"kwargs.{key}") for key, value in kwargs.items()
        }
        self._note_unused(record, used)
        return tuple(new_args), new_kwargs

    def _note_unused(self, record: ForwardRecord, used: set[str]) -> None:
        recorded = [(f"input.{i}", element) for i, element in enumerate(record.args)]
        recorded += [(f"kwargs.{key}", element) for key, element in record.kwargs.items()]
        for place, element in recorded:
            if place not in used and element is not None:
                self._note(place, "was recorded, and is not passed here")

    def _value(self, value: Any, element: Element, place: str) -> Any:
        if isinstance(value, self._tensor_class):
            return self._tensor(value, element, place)
        if isinstance(element, TensorElement):
            self._note(place, f"is {_described(value)} here, and a tensor in the dump")
            return value
        if type(value) in _SCALARS:
            self._compare(value, element, place)
            return value
        return self._container(value, element, place)

    def _tensor(self, value: Any, element: Element, place: str) -> Any:
        if not isinstance(element, TensorElement):
            self._note(place, f"is a tensor here, and {_recorded(element)} in the dump")
            return value
        if element.data_name is None:
            self._note(place, "has no file in the dump")
            return value
        try:
            fed = self._replace(value, element, place)
        except KeptError as reason:
            self._note(place, str(reason))
            return value
        self.places.append(place)
        return fed

    def _container(self, value: Any, element: Element, place: str) -> Any:
        if isinstance(value, Mapping) or dataclasses.is_dataclass(value) or hasattr(value, "_fields"):
            return self._mapping(value, element, place)
        if isinstance(value, (list, tuple)):
            elements = element if isinstance(element, list) else []
            new = [
                self._value(item, elements[i] if i < len(elements) else _MISSING, f"{place}.{i}")
                for i, item in enumerate(value)
            ]
            if all(one is other for one, other in zip(new, value, strict=True)):
                return value
            return type(value)(new)
        if value is not None and not isinstance(element, (ValueElement, MappingElement)):
            # A cache, for example, holds tensors that the recording does not show.
            self._note(place, f"is {_described(value)}, whose content is the program's own")
        return value

    def _mapping(self, value: Any, element: Element, place: str) -> Any:
        elements = element.items if isinstance(element, MappingElement) else {}
        items = _items(value)
        new = {
            key: self._value(item, elements.get(str(key), _MISSING), f"{place}.{key}") for key, item in items.items()
        }
        changed = {key: item for key, item in new.items() if item is not items[key]}
        if not changed:
            return value
        if isinstance(value, tuple):
            return value._replace(**changed)  # type: ignore[attr-defined]
        filled = copy(value)
        for key, item in changed.items():
            if isinstance(filled, Mapping):
                filled[key] = item  # type: ignore[index]
            else:
                object.__setattr__(filled, key, item)
        return filled

    def _compare(self, value: Any, element: Element, place: str) -> None:
        if isinstance(element, ValueElement):
            recorded = element.value
            is_nan = isinstance(value, float) and math.isnan(value)
            if recorded == value or (is_nan and recorded != recorded):
                return
            self._note(place, f"is {shown(value)} here, and {shown(recorded)} in the dump")
        elif element is not _MISSING:
            self._note(place, f"is {shown(value)} here, and {_recorded(element)} in the dump")

    def _note(self, place: str, what: str) -> None:
        self._kept[f"{self._label} {place} {what}"] += 1


def _items(value: Any) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return dict(zip(value._fields, value, strict=True))


def _recorded(element: Element) -> str:
    if element is _MISSING:
        return "nothing"
    if isinstance(element, ValueElement):
        return shown(element.value)
    return "None" if element is None else "a container"


def _described(value: Any) -> str:
    return shown(value) if value is None or type(value) in _SCALARS else f"an object of {type(value).__name__}"
