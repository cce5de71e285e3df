"""How recorded elements are written in Python, in the words of ``pytest_msprobe.recorded``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from msprobe_hooks.schema import Element, ForwardRecord, MappingElement, TensorElement, ValueElement, walk_tensors
from pytest_msprobe.generate.layout import Code, call, dict_of, list_of, literal, string, tuple_of
from pytest_msprobe.replay.arguments import lost_argument
from pytest_msprobe.replay.call import Call
from pytest_msprobe.replay.dtypes import dtype_named

#: Returns where a module finds the values of a tensor, None where they are drawn.
FileOf = Callable[[TensorElement], "str | None"]

_STATISTICS = ("min", "max", "mean", "norm", "finite_min", "finite_max")


def spell_call(recorded: Call, file_of: FileOf) -> Code:
    """Return a ``recorded.Call(...)``. Raises Skip where an argument is of a dtype that this torch lacks."""
    forward = recorded.forward
    parts: dict[str, Code] = {}
    if forward.args:
        parts["args"] = list_of([_positional(recorded, i, file_of) for i in range(len(forward.args))])
    if forward.kwargs:
        parts["kwargs"] = dict_of({key: _spell(element, file_of) for key, element in forward.kwargs.items()})
    outputs = _output_tensors(forward)
    if outputs:
        parts["outputs"] = list_of(outputs)
    if recorded.backward is not None:
        parts["grad_outputs"] = list_of([_spell(element, file_of) for element in recorded.backward.grad_outputs])
    return call("recorded.Call", **parts)


def _positional(recorded: Call, position: int, file_of: FileOf) -> Code:
    element = recorded.forward.args[position]
    if element == MappingElement({}):
        found = lost_argument(recorded, position)
        return _constant(found) if isinstance(found, torch.dtype) else "recorded.DEVICE"
    return _spell(element, file_of)


def _output_tensors(forward: ForwardRecord) -> list[Code]:
    return [call("recorded.Tensor", *_dtype_and_shape(element)) for element in walk_tensors(forward.output)]


def _spell(element: Element, file_of: FileOf) -> Code:
    if element is None:
        return "None"
    if isinstance(element, TensorElement):
        return _tensor(element, file_of(element))
    if isinstance(element, list):
        return list_of([_spell(item, file_of) for item in element])
    if isinstance(element, MappingElement):
        return dict_of({key: _spell(item, file_of) for key, item in element.items.items()})
    return _value(element)


def _tensor(element: TensorElement, file: str | None) -> Code:
    details: dict[str, Any] = {name: getattr(element, name) for name in _STATISTICS}
    details |= {"requires_grad": element.requires_grad or None, "numpy": element.type == "numpy.ndarray" or None}
    details["file"] = file
    named = {key: literal(value) for key, value in details.items() if value is not None}
    return call("recorded.Tensor", *_dtype_and_shape(element), **named)


def _dtype_and_shape(element: TensorElement) -> tuple[Code, Code]:
    return _constant(dtype_named(element.dtype)), tuple_of([literal(size) for size in element.shape])


def _value(element: ValueElement) -> Code:
    kind, value = element.type, element.value
    if kind == type(value).__name__ and isinstance(value, (bool, int, float, str)):
        return literal(value)
    if kind == "slice" and _is_list(value, 3, int, type(None)):
        return call("slice", *map(literal, value))
    if kind == "ellipsis":
        return "..."
    if kind == "torch.device":
        return "recorded.DEVICE"
    if kind == "torch.Size" and _is_list(value, None, int):
        return call("torch.Size", literal(value))
    if kind == "complex" and _is_list(value, 2, int, float):
        return call("complex", *map(literal, value))
    constant = _TORCH_CONSTANTS.get(kind) and getattr(torch, str(value).removeprefix("torch."), None)
    if constant is not None and isinstance(constant, _TORCH_CONSTANTS[kind]):
        return _constant(constant)
    return call("recorded.Value", string(kind), literal(value))


_TORCH_CONSTANTS: dict[str, type] = {
    "torch.dtype": torch.dtype,
    "torch.memory_format": torch.memory_format,
    "torch.layout": torch.layout,
}


def _constant(constant: Any) -> str:
    # What torch calls it, whatever the record did.
    return str(constant)


def _is_list(value: object, length: int | None, *kinds: type) -> bool:
    return isinstance(value, list) and length in (None, len(value)) and all(type(item) in kinds for item in value)
