"""Attributes of a primitive, which say what it computes: how a product transposes, how far a window strides."""

from __future__ import annotations

from typing import Any

from mindspore._c_expression import typing as dtypes
from mindspore.ops import Primitive

from msprobe_hooks.dump.writer import json_number


def settings_of(primitive: Primitive) -> dict[str, Any]:
    """Return the arguments of a primitive's constructor by name, as JSON has them.

    A dtype is an element as among arguments; of what JSON has no word for there is the type.
    """
    return {name: _plain(value) for name, value in primitive.init_attrs.items() if name != "name"}


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return json_number(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, dtypes.Type):
        return {"type": "mindspore.dtype", "value": str(value)}
    return {"type": f"{type(value).__module__}.{type(value).__qualname__}"}
