"""Names from files and programs as one line that can be shown and typed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator


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
