"""Calls of MindSpore's operators and of their gradients, on samples that are drawn as torch's tensors."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import mindspore
import torch
from mindspore import ops

from pytest_msprobe.extensions.operators.database import Operator, Sample

#: What a call is recorded as, by where MindSpore has the function.
_TYPES = {
    "mindspore.mint.nn.functional": "MintFunctional",
    "mindspore.mint": "Mint",
    "mindspore.ops": "Functional",
    "mindspore.Tensor": "Tensor",
}


def run_mindspore(recorder: Any, operator: Operator, sample: Sample) -> None:
    """Call an operator as a whole, and compute the gradients of all its results that are floats.

    Of a primitive's class the keyword arguments are what the primitive is made with. Raises what MindSpore raises.
    """
    weights: list[mindspore.Parameter] = []
    args, kwargs = _converted([*sample.args], weights), _converted(dict(sample.kwargs), weights)
    function, name, settings = operator.function, recorded_name(operator), None
    if _is_primitive(function):
        function = function(**kwargs)
        settings, kwargs = _settings(function), {}
    with recorder.suspended():
        # One that raises leaves no record.
        function(*_converted([*sample.args], []), **(kwargs and _converted(dict(sample.kwargs), [])))

    def run() -> list[mindspore.Tensor]:
        recording = recorder.api_call(f"{name}.{recorder.number(name)}.forward", sys._getframe())
        recording.begin(args, kwargs, settings=settings)
        results = recording.run_as_a_whole(function, args, kwargs)
        results = results if isinstance(results, (list, tuple)) else [results]
        # Of a primitive cells use the first; others may be memory for its gradient.
        results = results[:1] if settings is not None else results
        return [one for one in results if isinstance(one, mindspore.Tensor) and one.is_floating_point()]

    def total() -> mindspore.Tensor:
        results = run()
        with recorder.suspended():
            # In float32, since sums lack kernels for other dtypes on some devices.
            factors = [mindspore.Tensor(torch.randn(one.shape).numpy()) for one in results]
            products = [one.astype(mindspore.float32) * factor for one, factor in zip(results, factors, strict=True)]
            return sum((product.sum() for product in products), mindspore.Tensor(0.0, mindspore.float32))

    if weights:
        mindspore.grad(total, None, weights)()
    else:
        run()


def recorded_name(operator: Operator) -> str:
    """Return the name under which a check finds the function. Raises ValueError where it finds none."""
    home, _, name = operator.name.rpartition(".")
    if _is_primitive(operator.function):
        return f"Primitive.{name}.{name}"
    for place, type_ in _TYPES.items():
        if home == place or home.startswith(f"{place}."):
            return f"{type_}.{operator.name.removeprefix(f'{place}.')}"
    raise ValueError(f"{operator.name} is in none of {', '.join(_TYPES)}")


def _is_primitive(function: Any) -> bool:
    return isinstance(function, type) and issubclass(function, ops.Primitive)


def _settings(primitive: ops.Primitive) -> dict[str, Any]:
    """Return what a primitive was made with, of what JSON has a word for."""
    plain = (type(None), bool, int, float, str, list, tuple)
    return {key: value for key, value in primitive.init_attrs.items() if key != "name" and isinstance(value, plain)}


def _converted(value: Any, weights: list[mindspore.Parameter]) -> Any:
    """Return a value in MindSpore's terms, with tuples for lists; tensors with gradients are added to the weights."""
    if isinstance(value, Mapping):
        return {key: _converted(one, weights) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(_converted(one, weights) for one in value)
    if isinstance(value, torch.dtype):
        return _dtype(value)
    if not isinstance(value, torch.Tensor):
        return value
    # numpy has no bfloat16, whose values float32 holds.
    is_bfloat16 = value.dtype is torch.bfloat16
    values = (value.detach().float() if is_bfloat16 else value.detach()).numpy()
    tensor = mindspore.Tensor(values, _dtype(value.dtype))
    if not value.requires_grad:
        return tensor
    weights.append(mindspore.Parameter(tensor, name=f"input{len(weights)}"))
    return weights[-1]


def _dtype(dtype: torch.dtype) -> Any:
    return getattr(mindspore, {torch.bool: "bool_"}.get(dtype, str(dtype).removeprefix("torch.")))
