"""Uncompiled results of a compiled graph's operators, in float64, from values that are known."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.node import map_aggregate, map_arg

_LOW = frozenset({torch.float32, torch.float16, torch.bfloat16})
# Choices. Below the first, in units of the largest value's rounding, no one looks for a reason. The second leaves room
# for another order of summation, and is less than what a wrong kernel is off by, unless a sum cancels.
_NEAR = 16
_TIMES_AS_WRONG = 4.0
_CAST = "prims.convert_element_type"


class DrawsRandomNumbersError(Exception):
    """A value depends on random numbers that were drawn inside of the same kernel."""


def golden_value(node: fx.Node, inputs: Mapping[fx.Node, Any], actual: Tensor) -> Tensor:
    """Return what a kernel should have written, in the shape and dtype of what it has written.

    ``actual`` itself is returned where rounding explains the difference. Floating point values are right if they are at
    most a few times as wrong as those of PyTorch's own kernels in the graph's own precision, as where a sum cancels. Of
    integers and bools, elements that float64 and the graph's own precision give differently hang on rounding. Raises as
    `uncompiled` does, and ValueError where the buffer does not have the shape of the operator's value.
    """
    golden = _like(uncompiled(node, inputs), actual)
    if not golden.numel():
        return golden
    if not actual.is_floating_point() and not actual.is_complex():
        rounded = _like(uncompiled(node, inputs, is_raised=False), actual)
        return torch.where(golden == rounded, golden, actual)
    error, scale = _largest(actual, golden), float(golden.abs().max())
    # Not finite: left to the comparison.
    if scale < math.inf and error > _NEAR * torch.finfo(actual.dtype).eps * scale:
        rounded = _like(uncompiled(node, inputs, is_raised=False), actual)
        if error <= _TIMES_AS_WRONG * _largest(rounded, golden):
            return actual
    return golden


def _largest(one: Tensor, other: Tensor) -> float:
    """Return the largest difference; NaN where one is."""
    return float((one.to(other.dtype) - other).abs().max())


def uncompiled(node: fx.Node, inputs: Mapping[fx.Node, Any], *, is_raised: bool = True) -> Any:
    """Return the value of a node, computed by PyTorch's own kernels from the values that are known.

    Floating point values are float64 on the way where it ``is_raised``. Raises DrawsRandomNumbersError, and whatever an
    operator raises.
    """
    values: dict[fx.Node, Any] = {}
    waiting = [node]
    while waiting:
        one = waiting[-1]
        if one in values:
            waiting.pop()
        elif one in inputs:
            values[one] = _raised(inputs[one]) if is_raised else inputs[one]
            waiting.pop()
        else:
            missing = [parent for parent in one.all_input_nodes if parent not in values]
            if missing:
                waiting += missing
                continue
            values[one] = _computed(one, values, is_raised=is_raised)
            waiting.pop()
    return values[node]


def _computed(node: fx.Node, values: Mapping[fx.Node, Any], *, is_raised: bool) -> Any:
    if node.op != "call_function":
        raise NotImplementedError(f"{node.op} {node.target}")
    target: Callable[..., Any] = node.target  # type: ignore[assignment]
    operands: Any = map_arg((node.args, node.kwargs), values.__getitem__)
    args, kwargs = operands
    name = str(target)
    if is_random(node):
        raise DrawsRandomNumbersError(node.name)
    if name.startswith("aten.copy_"):
        return args[1].to(args[0].dtype).expand(args[0].shape)
    if is_raised and name.startswith(_CAST):
        return args[0].to(_wide(args[1]))
    if target is not operator.getitem and isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable:
        operands = map_aggregate((args, kwargs), _cloned)
        args, kwargs = operands
    if is_raised and "dtype" in kwargs:
        kwargs = {**kwargs, "dtype": _wide(kwargs["dtype"])}
    return target(*args, **kwargs)


def is_random(node: fx.Node) -> bool:
    """Return whether an operator draws random numbers."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        names = [argument.name for argument in target._schema.arguments]
        if "dropout_p" in names:
            place = names.index("dropout_p")
            share = node.args[place] if place < len(node.args) else node.kwargs.get("dropout_p", 0.0)
            return bool(share)
        if torch.Tag.nondeterministic_seeded in target.tags:
            return True
    return any(word in str(target) for word in ("inductor_rand", "inductor_seed"))


def _raised(value: Any) -> Any:
    return value.to(torch.float64) if isinstance(value, Tensor) and value.dtype in _LOW else value


def _wide(dtype: Any) -> Any:
    return torch.float64 if dtype in _LOW else dtype


def _cloned(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def _like(value: Any, actual: Tensor) -> Tensor:
    if not isinstance(value, Tensor):
        raise ValueError("the operator's value is no tensor")
    if value.shape != actual.shape:
        # Inductor may keep dimensions of size 1 or leave them out.
        if [size for size in value.shape if size != 1] != [size for size in actual.shape if size != 1]:
            raise ValueError(f"a buffer of shape {tuple(actual.shape)} for a value of shape {tuple(value.shape)}")
        value = value.reshape(actual.shape)
    golden: Tensor = value.to(actual.dtype)
    return golden
