"""Smaller shapes for a recorded call: sizes that are equal in the record stay equal, so that shapes fit together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msprobe_hooks.dump.memory_layouts import LAYOUT_KEYS
from msprobe_hooks.dump.schema import TENSOR_TYPES, tensors_of
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.ops.op_info import op_info

Sizes = Mapping[int, int]

# A choice: sizes that are tried, from the smallest up; each costs runs of the call.
_TRIED = (1, 2, 3, 4, 8)


def recorded_sizes(call: Call) -> list[int]:
    """Return the sizes over 1 that the tensors of a call have, the largest first; none where shapes must stay."""
    if op_info(call.name.api).index:
        # Lists of whole numbers are positions, and a shape decides how the record is read.
        return []
    tensors = tensors_of([*call.forward.args, *call.forward.kwargs.values()])
    return sorted({size for tensor in tensors for size in tensor.shape if size > 1}, reverse=True)


def smallest_sizes(sizes: list[int], accepts: Callable[[Sizes], bool]) -> dict[int, int]:
    """Return, for each size that can be smaller, the smallest that a call accepts with the others as small as found."""
    for small in _TRIED:
        together = {size: min(small, size) for size in sizes}
        if accepts(together):
            return {size: to for size, to in together.items() if to < size}
    reduced: dict[int, int] = {}
    for size in sizes:
        tried = (small for small in _TRIED if small < size)
        smallest = next((small for small in tried if accepts({**reduced, size: small})), None)
        if smallest is not None:
            reduced[size] = smallest
    return reduced


def resized(body: Mapping[str, Any], api: str, sizes: Sizes) -> dict[str, Any]:
    """Return the body of a forward record with other sizes; statistics that belong to the former shapes are dropped."""
    bare = op_info(api).bare_sizes

    def element(value: Any, *, nested: bool) -> Any:
        if isinstance(value, list):
            return [element(item, nested=True) for item in value]
        if not isinstance(value, dict):
            return value
        kind = value.get("type")
        if kind in TENSOR_TYPES:
            return {**value, "shape": _mapped(value["shape"], sizes), "Mean": None, "Norm": None}
        if kind == "torch.Size":
            return {**value, "value": _mapped(value["value"], sizes)}
        if kind == "int" and (nested or bare):
            return {**value, "value": sizes.get(value["value"], value["value"])}
        if isinstance(kind, str):
            return value
        return {key: element(item, nested=True) for key, item in value.items()}

    args = [element(item, nested=False) for item in body.get("input_args") or []]
    kwargs = {key: element(item, nested=False) for key, item in (body.get("input_kwargs") or {}).items()}
    return {**body, "input_args": args, "input_kwargs": kwargs}


def without_layouts(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a forward record without how its tensors lay in memory: inputs lie as they are drawn."""

    def element(value: Any) -> Any:
        if isinstance(value, list):
            return list(map(element, value))
        if not isinstance(value, dict):
            return value
        is_tensor = value.get("type") in TENSOR_TYPES
        return {key: element(item) for key, item in value.items() if not (is_tensor and key in LAYOUT_KEYS)}

    return {key: element(value) if key in ("input_args", "input_kwargs") else value for key, value in body.items()}


def _mapped(shape: list[int], sizes: Sizes) -> list[int]:
    return [sizes.get(size, size) for size in shape]
