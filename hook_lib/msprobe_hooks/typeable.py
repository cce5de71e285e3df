"""Names of others as one line that can be shown and typed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator


def typeable_name(name: str) -> str:
    r"""Return a name with what has no shape spelled out, as ``\x1b`` and ``\n``: it stays one line."""
    if name.isprintable():
        return name
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in name)


def id_name(name: str) -> str:
    """Return a name as the ids of tests hold it: typeable, and without ``::``, which separates the names of an id."""
    return typeable_name(name).replace("::", r":\x3a") if "::" in name else typeable_name(name)


def numbered(names: Iterable[str]) -> Iterator[str]:
    """Yield names as ids hold them, with ``#2`` and so on where several are spelled alike."""
    seen = Counter[str]()
    for name in map(id_name, names):
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name}#{seen[name]}"
