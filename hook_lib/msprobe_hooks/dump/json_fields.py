"""Fields of a record's decoded JSON, checked: what no recorder writes is refused with its JSON path."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

from msprobe_hooks.errors import RecordError

Number: TypeAlias = float | int | bool

# So many elements no tensor has.
_TOO_MANY_ELEMENTS = 2**63
_USUAL_DIMENSIONS = 16


def require_possible(shape: Sequence[int], path: str) -> None:
    """Raise RecordError for a shape that no tensor has."""
    if len(shape) <= _USUAL_DIMENSIONS and 0 not in shape and math.prod(shape) < _TOO_MANY_ELEMENTS:
        return
    elements = 1
    for size in shape:
        elements *= size or 1
        if elements >= _TOO_MANY_ELEMENTS:
            raise RecordError(path, "expected the shape of a tensor, found one of 2**63 elements or more")


def non_finite(text: str) -> float | None:
    """Return the number that a text such as ``Infinity``, ``-inf`` or ``nan`` is; None for any other text."""
    return _NON_FINITE.get(text.strip().lower().replace("infinity", "inf"))


_NON_FINITE = {text: float(text) for text in ("nan", "inf", "-inf")}


def statistic(fields: Mapping[str, object], key: str, path: str) -> Number | None:
    """Return a number, None where there is none. Raises RecordError for anything else."""
    value = fields.get(key)
    # JSON allows integers of more than 300 digits, which no tensor holds.
    if value is None or isinstance(value, float) or (isinstance(value, int) and abs(value) <= sys.float_info.max):
        return value
    number = non_finite(value) if isinstance(value, str) else None
    return refuse(f"{path}.{key}", "a number", value) if number is None else number


def count(fields: Mapping[str, object], key: str, path: str) -> int | None:
    """Return a number of elements, None where there is none. Raises RecordError for anything else."""
    value = fields.get(key)
    if value is None or (type(value) is int and 0 <= value < _TOO_MANY_ELEMENTS):
        return value
    return refuse(f"{path}.{key}", "a number of elements", value)


def as_object(value: object, path: str) -> Mapping[str, Any]:
    """Return a value that is an object. Raises RecordError for anything else."""
    if not isinstance(value, dict):
        refuse(path, "an object", value)
    return value


_JSON_NAMES = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "nothing"}


def refuse(path: str, expected: str, value: object) -> NoReturn:
    """Raise RecordError for a value at a JSON path."""
    raise RecordError(path, f"expected {expected}, found {_JSON_NAMES.get(type(value), 'a number')}")
