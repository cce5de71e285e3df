"""Parts of messages: values, counts, sizes and names as text, and the known name that was probably meant."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_LONGEST = 300


def did_you_mean(name: object, candidates: Iterable[str]) -> str:
    """Return ``; did you mean 'step'?`` for the known name that is close to this one, empty where none is."""
    nearest = closest(name, candidates)
    return f"; did you mean {nearest!r}?" if nearest is not None else ""


def closest(name: object, candidates: Iterable[str]) -> str | None:
    """Return the known name that is most like this one, else most like it whatever their case; None where none is."""
    if not isinstance(name, str) or len(name) > _LONGEST:
        return None
    from difflib import get_close_matches

    names = [*candidates]
    if matches := get_close_matches(name, names, n=1):
        return matches[0]
    folded = {candidate.casefold(): candidate for candidate in names}
    matches = get_close_matches(name.casefold(), folded, n=1)
    return folded[matches[0]] if matches else None


def naming_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function whose error about a keyword that it does not have names the one that was probably meant."""

    @wraps(function)
    def called(*args: P.args, **keywords: P.kwargs) -> R:
        if keywords:
            parameters, called_as = signature(function).parameters, function.__qualname__.removesuffix(".__new__")
            for name in keywords.keys() - parameters.keys():
                raise TypeError(f"{called_as}() has no argument {name!r}{did_you_mean(name, parameters)}")
        return function(*args, **keywords)

    return called


def shown(value: object) -> str:
    """Return a value as a message shows it, which is not at full length where it is long."""
    try:
        return clipped(repr(value))
    except ValueError:
        return "a number of thousands of digits"


def clipped(text: str) -> str:
    """Return a text as a part of a message, not at full length where it is long."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def counted(count: int, one: str, more: str | None = None) -> str:
    """Return a number of things in words; ``more`` is their plural where that is not ``one`` and an s."""
    return f"{count} {one if count == 1 else more or one + 's'}"


def listed(names: Iterable[str], most: int = 8) -> str:
    """Return names as text: ``most`` of them, and how many more there are."""
    every = list(names)
    shown_names, more = ", ".join(every[:most]), len(every) - most
    return f"{shown_names} and {more} more" if more > 0 else shown_names


def escaped_name(name: str) -> str:
    r"""Return a name with what has no shape spelled out, as ``\x1b`` and ``\n``: it stays one line."""
    if name.isprintable():
        return name
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in name)


def id_name(name: str) -> str:
    """Return a name as the ids of tests hold it: escaped, and without ``::``, which separates the names of an id."""
    return escaped_name(name).replace("::", r":\x3a") if "::" in name else escaped_name(name)


def numbered(names: Iterable[str]) -> Iterator[str]:
    """Yield names of which no two are equal: those that are get ``#2`` and so on, whatever else is called so."""
    counts, used = Counter[str](), set[str]()
    for name in names:
        unique = name
        while unique in used:
            counts[name] += 1
            unique = f"{name}#{counts[name] + 1}"
        used.add(unique)
        yield unique


_UNITS = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT]iB|B|)")


def format_size(size: int) -> str:
    """Return a number of bytes in the largest unit of which there is one."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size >= _UNITS[unit]:
            return f"{size / _UNITS[unit]:.1f} {unit}"
    return f"{size} B"


def parse_size(text: str) -> int | None:
    """Return the bytes that a text such as ``500MiB`` says, None where it is not a size."""
    match = _SIZE.fullmatch(text)
    return int(float(match[1]) * _UNITS[match[2]]) if match else None
