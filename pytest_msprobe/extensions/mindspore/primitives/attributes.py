"""The settings of a recorded primitive: what the recording says, else what the shapes of inputs and results say."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from msprobe_hooks.dump.schema import Element, ForwardRecord, TensorElement, ValueElement, tensors_of
from pytest_msprobe.engine.values.dtypes import dtype_named
from pytest_msprobe.results.skip_reasons import Skip


def required(golden: Callable[..., Any]) -> list[str]:
    """Return the names of the settings without which a definition cannot be computed."""
    parameters = inspect.signature(golden).parameters.values()
    return [
        parameter.name
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
    ]


def as_elements(settings: Mapping[str, Any]) -> dict[str, Element]:
    """Return recorded settings as elements of keyword arguments."""
    return {name: _element(value) for name, value in settings.items()}


def _element(value: Any) -> Element:
    if isinstance(value, list):
        return [_element(item) for item in value]
    if isinstance(value, dict):
        # A dtype; of what JSON has no word for there is the type alone.
        return ValueElement(str(value.get("type")), value.get("value"))
    return None if value is None else ValueElement(type(value).__name__, value)


def infer_from_shapes(golden: Callable[..., Any], record: ForwardRecord) -> dict[str, Any]:
    """Return the settings of a definition if the recorded shapes allow exactly one choice of them; else nothing.

    A definition is computed on tensors without values for each choice there is.
    """
    names = required(golden)
    first = next(iter(tensors_of(record.args)), None)
    if not names or first is None or not record.output:
        return {}
    choices = [_choices(name, len(first.shape), len(record.output)) for name in names]
    shapes = [element.shape for element in tensors_of(record.output)]
    try:
        inputs = [_without_values(element) for element in record.args]
    except (Skip, TypeError):
        return {}
    fitting = []
    for values in itertools.product(*choices):
        settings = dict(zip(names, values, strict=True))
        if _shapes(golden, inputs, settings) == shapes:
            fitting.append(settings)
    return fitting[0] if len(fitting) == 1 else {}


def _choices(name: str, axes: int, outputs: int) -> tuple[Any, ...]:
    """Return all values that a setting may have had, none where they cannot be enumerated."""
    if name in ("transpose_a", "transpose_b", "keep_dims"):
        return (False, True)
    if name == "skip_mode":
        # It matters where no axis is named, and there the shapes show it.
        return (False,)
    if name in ("axis", "batch_dims"):
        # A new axis may be the last one.
        return tuple(range(axes + (name == "axis")))
    if name == "data_format":
        # Without spatial axes both mean the same.
        return ("NCHW", "NHWC") if axes > 2 else ("NCHW",)
    return (outputs,) if name == "output_num" else ()


def _without_values(element: Element) -> Any:
    if isinstance(element, TensorElement):
        return torch.empty(element.shape, dtype=dtype_named(element.dtype), device="meta")
    if isinstance(element, list):
        return [_without_values(item) for item in element]
    if isinstance(element, ValueElement):
        return element.value
    raise TypeError(element)


def _shapes(golden: Callable[..., Any], inputs: list[Any], settings: Mapping[str, Any]) -> list[tuple[int, ...]] | None:
    try:
        return [tuple(tensor.shape) for tensor in _tensors(golden(*inputs, **settings))]
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
        return None


def _tensors(output: Any) -> Iterator[torch.Tensor]:
    for result in output if isinstance(output, (list, tuple)) else [output]:
        if isinstance(result, torch.Tensor):
            yield result
