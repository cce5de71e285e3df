"""Recorded calls of primitives: their settings as keyword arguments, casts of mixed precision, and what runs them."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import mindspore
import msgspec
import torch
from mindspore import ops

from msprobe_hooks.dump.names import ApiName
from msprobe_hooks.dump.schema import Element, ForwardRecord, TensorElement, ValueElement, tensors_of
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.framework import Functions
from pytest_msprobe.engine.replay.ops.lookup import resolve
from pytest_msprobe.engine.replay.references import ReferenceRegistry
from pytest_msprobe.engine.values.dtypes import dtype_named, is_low_precision
from pytest_msprobe.extensions.mindspore.jit_functions import bridged, mindspore_dtype
from pytest_msprobe.extensions.mindspore.primitives.registry import TABLE, Definition
from pytest_msprobe.extensions.mindspore.translation import MindSporeSkip
from pytest_msprobe.results.outcomes import Skip


def narrow_dtype(record: ForwardRecord) -> torch.dtype | None:
    """Return the dtype of 16 bits that a call computed in though some inputs have more; None where it did not.

    A cell of mixed precision (``to_float``, ``amp``) has its parameters cast inside of the call, where no record sees
    it. Any other primitive but a cast widens what is narrow, so that the result is wide.
    """
    dtypes = [dtype_named(element.dtype) for element in tensors_of(record.args)]
    narrow = next((dtype_named(element.dtype) for element in tensors_of(record.output)), None)
    is_wider = any(dtype.is_floating_point and dtype is not narrow for dtype in dtypes)
    return narrow if narrow is not None and is_low_precision(narrow) and is_wider else None


def casting_target(function: Callable[..., Any], narrow: torch.dtype) -> Callable[..., Any]:
    """Return a function on MindSpore's tensors that computes with all floats cast to ``narrow``."""
    dtype = mindspore_dtype(narrow)

    def cast(value: Any) -> Any:
        is_float = isinstance(value, mindspore.Tensor) and value.is_floating_point()
        return ops.cast(value, dtype) if is_float and value.dtype != dtype else value

    return lambda *args, **kwargs: function(*map(cast, args), **kwargs)


def casting_golden(function: Callable[..., Any], narrow: torch.dtype) -> Callable[..., Any]:
    """Return a function on torch's tensors that computes with all floats rounded to ``narrow``.

    Where all of them are raised the results stay so, and gradients pass unrounded.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        floats = [operand for operand in args if isinstance(operand, torch.Tensor) and operand.is_floating_point()]
        is_raised = all(operand.dtype is torch.float64 for operand in floats)
        return function(*_rounded(args, narrow, is_raised=is_raised), **kwargs)

    return call


def _rounded(args: Sequence[Any], narrow: torch.dtype, *, is_raised: bool) -> list[Any]:
    def rounded(value: Any) -> Any:
        if not (isinstance(value, torch.Tensor) and value.is_floating_point()):
            return value
        cast = value.to(narrow)
        return value + (cast.to(value.dtype) - value).detach() if is_raised else cast

    return list(map(rounded, args))


def class_of(name: ApiName) -> str:
    """Return the class of a primitive: what a record names behind the attribute that held it."""
    return name.api.rpartition(".")[2]


def counterpart(name: ApiName) -> ApiName | None:
    """Return the API by which policies and traits know a primitive; None where it has no definition."""
    definition = TABLE.get(class_of(name))
    if definition is None:
        return None
    kind, _, api = definition.counterpart.partition(".")
    return replace(name, type=kind, api=api)


def with_settings(record: ForwardRecord, name: ApiName) -> ForwardRecord:
    """Return a record with the settings among its keyword arguments: primitives have no others."""
    definition = TABLE.get(class_of(name))
    settings = record.settings
    if settings is None and definition is not None and definition.golden is not None and not record.kwargs:
        settings = _infer_from_shapes(definition.golden, record)
    if not settings:
        return record
    renamed = {} if definition is None else definition.renamed
    elements = {renamed.get(key, key): element for key, element in _as_elements(settings).items()}
    return msgspec.structs.replace(record, kwargs={**elements, **record.kwargs})


def functions_of_primitive(
    call: Call, references: ReferenceRegistry, make: Callable[..., Any] | None = None
) -> Functions:
    """Return a primitive, on torch tensors, and its golden definition. Raises Skip where one cannot be had.

    ``make`` is the primitive's class where it is known already.
    """
    name = call.name
    kind = class_of(name)
    registered = references.get(name.qualified_api) or references.get(f"Primitive.{kind}")
    definition = TABLE.get(kind)
    if registered is not None:
        definition = Definition(name.qualified_api, registered)
    if definition is None:
        raise Skip(MindSporeSkip.NO_COUNTERPART, f"primitive {kind}")
    make = make or primitive_class(kind)
    if make is None:
        raise Skip(MindSporeSkip.MISSING_API, f"primitive {kind}")
    golden = definition.golden or resolve(call.counterpart or name, references)
    named = _required(golden) if definition.golden else []
    missing = [setting for setting in named if setting not in call.forward.kwargs]
    if missing:
        raise Skip(MindSporeSkip.NO_SETTINGS, f"{kind} needs {', '.join(missing)}")
    primitive = _Made(make, definition)
    unknown = primitive.unknown(call.forward.kwargs)
    if unknown:
        raise Skip(MindSporeSkip.MISSING_API, f"primitive {kind} with {', '.join(unknown)}")
    target: Callable[..., Any] = primitive
    golden = _with_settings_among(golden, named)
    # What a call changes is the caller's own tensor, and no copy of 16 bits.
    narrow = None if kind == "Cast" or definition.changes else narrow_dtype(call.forward)
    if narrow is not None:
        target, golden = casting_target(target, narrow), casting_golden(golden, narrow)
    return Functions(bridged(target, changes=definition.changes), golden)


def primitive_class(kind: str) -> Callable[..., Any] | None:
    """Return the class of primitives of that name; None where this MindSpore has none."""
    homes = (ops, ops.operations, ops.auto_generate, ops.operations.nn_ops)
    primitive = next((getattr(home, kind) for home in homes if hasattr(home, kind)), None)
    return primitive if isinstance(primitive, type) and issubclass(primitive, ops.Primitive) else None


class _Made:
    """A function that makes a primitive of its keyword arguments and calls it with the others."""

    def __init__(self, make: Callable[..., Any], definition: Definition) -> None:
        self._make = make
        self._definition = definition
        self._own_names = {theirs: own for own, theirs in definition.renamed.items()}

    def unknown(self, settings: Iterable[str]) -> list[str]:
        """Return those of the settings that this version of the primitive is not made with."""
        parameters = inspect.signature(self._make).parameters.values()
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            return []
        names = {parameter.name for parameter in parameters}
        return [name for name in settings if self._own_names.get(name, name) not in names]

    def __call__(self, *args: Any, **settings: Any) -> Any:
        named = {self._own_names.get(key, key): value for key, value in settings.items()}
        seed = self._definition.seed
        if seed is not None:
            named[seed] = named.get(seed) or 1
        results = self._make(**named)(*args)
        if self._definition.outputs is not None:
            results = results[: self._definition.outputs]
        return results if self._definition.returns else None


def _with_settings_among(golden: Callable[..., Any], named: list[str]) -> Callable[..., Any]:
    """Return the definition as a function of all settings, of which it takes those that it names."""

    @functools.wraps(golden)
    def call(*args: Any, **settings: Any) -> Any:
        return golden(*args, **{key: value for key, value in settings.items() if key in named})

    return call


def _required(golden: Callable[..., Any]) -> list[str]:
    """Return the names of the settings without which a definition cannot be computed."""
    parameters = inspect.signature(golden).parameters.values()
    return [
        parameter.name
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
    ]


def _as_elements(settings: Mapping[str, Any]) -> dict[str, Element]:
    """Return recorded settings as elements of keyword arguments."""
    return {name: _element(value) for name, value in settings.items()}


def _element(value: Any) -> Element:
    if isinstance(value, list):
        return [_element(item) for item in value]
    if isinstance(value, dict):
        # A dtype; of what JSON has no word for there is the type alone.
        return ValueElement(str(value.get("type")), value.get("value"))
    return None if value is None else ValueElement(type(value).__name__, value)


def _infer_from_shapes(golden: Callable[..., Any], record: ForwardRecord) -> dict[str, Any]:
    """Return the settings of a definition if the recorded shapes allow exactly one choice of them; else nothing.

    A definition is computed on tensors without values for each choice there is.
    """
    names = _required(golden)
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
