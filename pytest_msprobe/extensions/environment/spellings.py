"""Settings that are the same, however they are spelled."""

from __future__ import annotations

import math
from typing import Any


def is_same(one: Any, other: Any) -> bool:
    """Return whether two settings are the same, however they are spelled: 1e-4 is 0.0001, true is True."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return bool(_canonical(one) == _canonical(other))


def _canonical(value: Any) -> Any:
    text = str(value).strip()
    if "_" in text:
        # A name, though Python reads 1_0 as a number.
        return text
    try:
        number = float(text)
    except ValueError:
        return text.lower() if text.lower() in ("true", "false", "none", "null") else text
    # Large integers are more exact than floats; not a number is equal to itself here.
    return text if text.lstrip("+-").isdecimal() or math.isnan(number) else _as_integer(number)


def _as_integer(number: float) -> str | float:
    return str(int(number)) if number.is_integer() else number


def is_repeated(text: Any, value: Any) -> bool:
    """Return whether a word of a command line, or several joined by spaces, is a value that a program made of it."""
    if isinstance(value, (list, tuple)) and isinstance(text, str):
        return is_same(text.split(), list(value))
    return is_same(text, value)
