"""Python source of recorded elements, and the spelling of functions, dtypes and constants of a framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from msprobe_hooks.dump.schema import NONFINITE_COUNTS, Element, MappingElement, TensorElement, ValueElement, tensors_of
from pytest_msprobe.engine.framework_names import PYTORCH
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.calls.arguments import unrecoverable_argument
from pytest_msprobe.engine.replay.references import ReferenceRegistry
from pytest_msprobe.engine.values.dtypes import dtype_named
from pytest_msprobe.extensions.generate.source_format import (
    Code,
    SpelledFunction,
    call,
    dict_of,
    function_of,
    list_of,
    literal,
    string,
    tuple_of,
)

#: Returns where a module finds the values of a tensor, None where they are drawn.
FileOf = Callable[[TensorElement], "str | None"]

_STATISTICS = ("min", "max", "mean", "norm", "finite_min", "finite_max", *NONFINITE_COUNTS)

_CONSTANTS: dict[str, type] = {
    "torch.dtype": torch.dtype,
    "torch.memory_format": torch.memory_format,
    "torch.layout": torch.layout,
}


@dataclass(frozen=True, slots=True)
class _Terms:
    """In what terms elements are written."""

    language: Language
    file_of: FileOf


def spell_call(recorded: Call, language: Language, file_of: FileOf, inputs: Mapping[str, Code] | None = None) -> Code:
    """Return a ``recorded.Call(...)`` for a call in torch terms; ``inputs`` spells tensors that are given, by place.

    Raises Skip where an argument is of a dtype that the framework or this torch lacks.
    """
    forward, terms = recorded.forward, _Terms(language, file_of)
    parts: dict[str, Code] = {}
    if language.framework != PYTORCH:
        parts["framework"] = string(language.framework)
    if forward.args:
        parts["args"] = list_of([_positional(recorded, i, terms) for i in range(len(forward.args))])
    if forward.kwargs:
        parts["kwargs"] = dict_of({key: _spell(element, terms) for key, element in forward.kwargs.items()})
    outputs: list[Code] = [
        call("recorded.Tensor", *_dtype_and_shape(tensor, terms)) for tensor in tensors_of(forward.output)
    ]
    if outputs:
        parts["outputs"] = list_of(outputs)
    if recorded.backward is not None:
        parts["grad_outputs"] = list_of([_spell(element, terms) for element in recorded.backward.grad_outputs])
    if inputs:
        parts["inputs"] = dict_of(dict(inputs))
    return call("recorded.Call", **parts)


def _positional(recorded: Call, position: int, terms: _Terms) -> Code:
    element = recorded.forward.args[position]
    if element == MappingElement({}):
        argument = unrecoverable_argument(recorded, position)
        return terms.language.dtype(argument) if isinstance(argument, torch.dtype) else "recorded.DEVICE"
    return _spell(element, terms)


def _spell(element: Element, terms: _Terms) -> Code:
    if element is None:
        return "None"
    if isinstance(element, TensorElement):
        return _tensor(element, terms)
    if isinstance(element, list):
        return list_of([_spell(item, terms) for item in element])
    if isinstance(element, MappingElement):
        return dict_of({key: _spell(item, terms) for key, item in element.items.items()})
    return _value(element, terms.language)


def _tensor(element: TensorElement, terms: _Terms) -> Code:
    details: dict[str, Any] = {name: getattr(element, name) for name in _STATISTICS}
    details |= {"requires_grad": element.requires_grad or None, "numpy": element.type == "numpy.ndarray" or None}
    details["file"] = terms.file_of(element)
    if element.layout is not None:
        optional = ("storage_offset", "storage_size", "is_conj", "is_neg")
        details |= {name: getattr(element.layout, name) or None for name in optional}
        details |= {"stride": element.layout.stride, "storage": element.layout.storage}
    named = {key: literal(value) for key, value in details.items() if value is not None}
    return call("recorded.Tensor", *_dtype_and_shape(element, terms), **named)


def _dtype_and_shape(element: TensorElement, terms: _Terms) -> tuple[Code, Code]:
    dtype = terms.language.dtype(dtype_named(element.dtype))
    return dtype, tuple_of([literal(size) for size in element.shape])


def _value(element: ValueElement, language: Language) -> Code:
    kind, value = element.type, element.value
    if kind == type(value).__name__ and isinstance(value, (bool, int, float, str)):
        return literal(value)
    if kind == "slice" and _is_list(value, 3, int, type(None)):
        return call("slice", *map(literal, value))
    if kind == "ellipsis":
        return "..."
    if kind == "torch.device":
        return "recorded.DEVICE"
    if kind == "complex" and _is_list(value, 2, int, float):
        return call("complex", *map(literal, value))
    return language.constant(element) or call("recorded.Value", string(kind), literal(value))


def _is_list(value: object, length: int | None, *kinds: type) -> bool:
    return isinstance(value, list) and length in (None, len(value)) and all(type(item) in kinds for item in value)


class Language(Protocol):
    """Language that modules for the calls of a framework are written in.

    All texts are made of names that the framework itself has, never of the record's. ``framework`` is the name that
    dumps give it.
    """

    framework: str

    def in_torch_terms(self, call: Call) -> Call:
        """Return a recorded call with torch's dtype names, in which each tensor says whether it requires a gradient."""

    def function(self, call: Call, references: ReferenceRegistry) -> SpelledFunction:
        """Return what to write for a call's function. Raises Skip, with the reason, where the call is not judged."""

    def dtype(self, dtype: torch.dtype) -> str:
        """Return the framework's spelling of a dtype. Raises Skip where it has none."""

    def constant(self, element: ValueElement) -> Code | None:
        """Return the spelling of a value that is of the framework's own type; None for any other."""


class TorchLanguage:
    """PyTorch's."""

    framework = PYTORCH

    def in_torch_terms(self, call: Call) -> Call:
        """Return the call itself."""
        return call

    def function(self, call: Call, references: ReferenceRegistry) -> SpelledFunction:
        """Return the function that the record names."""
        return function_of(call.name, references)

    def dtype(self, dtype: torch.dtype) -> str:
        """Return what torch calls it, whatever the record did."""
        return str(dtype)

    def constant(self, element: ValueElement) -> Code | None:
        """Return the spelling of a size, dtype, memory format or layout."""
        value = element.value
        if element.type == "torch.Size" and isinstance(value, list) and all(type(size) is int for size in value):
            return call("torch.Size", literal(value))
        kind = _CONSTANTS.get(element.type)
        constant = kind and getattr(torch, str(value).removeprefix("torch."), None)
        return str(constant) if kind and isinstance(constant, kind) else None


def language_of(framework: str) -> Language:
    """Return how the calls of a framework are written. Raises DeviceError where it cannot be imported."""
    if framework == PYTORCH:
        return TorchLanguage()
    from pytest_msprobe.extensions.mindspore.runtime import start

    start()
    from pytest_msprobe.extensions.generate.mindspore_language import MindSporeLanguage

    return MindSporeLanguage()
