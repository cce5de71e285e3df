"""The fields of a step in a YAML file, as numbers, choices and arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_msprobe.extensions.transformations.array_file import ArrayFile
from pytest_msprobe.messages import not_one_of, unknown

if TYPE_CHECKING:
    from pytest_msprobe.yaml_with_lines import Part


# No model has as many layers or experts.
_MOST = 100_000


def fields(part: Part, known: Sequence[str], required: Sequence[str] = ()) -> dict[str, Part]:
    """Return the fields of a mapping. Raises OptionError for an unknown one, and where a required one is missing."""
    found: dict[str, Part] = {}
    for name, key, value in part.items(f"not a mapping with the keys {', '.join(known)}"):
        if name not in known:
            raise key.refuse(unknown("key", name, known))
        found[name] = value
    missing = [name for name in required if name not in found]
    if missing:
        raise part.refuse(f"{missing[0]} is missing; add it")
    return found


def integer(part: Part, *, least: int | None = None) -> int:
    """Return an integer, at least ``least``. Raises OptionError."""
    text = part.text("an integer")
    try:
        value = int(text)
    except ValueError:
        raise part.refuse(f"{text!r} in place of an integer") from None
    if least is not None and value < least:
        raise part.refuse(f"{value} in place of an integer of at least {least}")
    return value


def integers(part: Part) -> tuple[int, ...]:
    """Return a list of integers. Raises OptionError."""
    if not part.is_list:
        raise part.refuse("not a list of integers, as [0, 1]")
    return tuple(integer(member) for member in part.members())


def integer_range(part: Part) -> Sequence[int]:
    """Return a list of integers, or those from the first to the last of ``0-31``. Raises OptionError."""
    if part.is_list:
        return integers(part)
    text = part.text("numbers")
    first, dash, last = text.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal()) or not int(first) <= int(last) < _MOST:
        raise part.refuse(f"{text!r} in place of numbers, such as 0-31 or [0, 2]")
    return range(int(first), int(last) + 1)


def number(part: Part) -> float:
    """Return a finite number. Raises OptionError."""
    text = part.text("a number")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise part.refuse(f"{text!r} in place of a number")
    return value


def choice(part: Part, known: Sequence[str]) -> str:
    """Return one of some words. Raises OptionError."""
    text = part.text(" or ".join(known))
    if text not in known:
        raise part.refuse(f"{text!r} is {not_one_of(text, known)}")
    return text


def flag(part: Part) -> bool:
    """Return true or false. Raises OptionError."""
    return choice(part, ("true", "false")) == "true"


def array_file(part: Part) -> ArrayFile:
    """Return an array: a file relative to the YAML's folder, or ``{file: F, key: K}``, read at once.

    Raises OptionError, also where the file cannot be read.
    """
    key = ""
    if part.is_mapping:
        found = fields(part, ("file", "key"), required=("file",))
        key = found["key"].text("the name of a tensor") if "key" in found else ""
        part = found["file"]
    found_array = ArrayFile(part.path.parent / part.text("a file"), key, part.place)
    _ = found_array.tensor
    return found_array
