"""Values of users' files and options: what a limit may be, and how a message shows a value."""

from __future__ import annotations

from collections.abc import Iterable

_LONGEST = 200  # characters, a choice: longer texts hide the rest of a message, and are no misspelled name
# So many names are all listed: of these a guess says no more.
_FEW = 3


def is_limit(value: object) -> bool:
    """Return whether a value is what a limit can be: a number that a float holds, 0 or above."""
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and float(value) >= 0
    except OverflowError:
        return False


def hint(name: object, allowed: Iterable[str]) -> str:
    """Return ``; did you mean 'ulp'?`` for a known name close to this one, or ``; known: ...`` with all, if few."""
    allowed = list(allowed)
    names = {word.casefold(): word for word in allowed} if isinstance(name, str) and len(name) <= _LONGEST else {}
    if len(names) > _FEW:
        from difflib import get_close_matches

        if matches := get_close_matches(str(name).casefold(), names, n=1):
            return f"; did you mean {names[matches[0]]!r}?"
    return f"; known: {', '.join(allowed) or 'none'}"


def shown(value: object) -> str:
    """Return a value as a message shows it, on one line and not at full length where it is long."""
    try:
        return clipped(repr(value))
    except ValueError:
        return "a number of thousands of digits"


def clipped(text: str) -> str:
    """Return a text of another program as a part of a message, on one line and not at full length where it is long."""
    line = " ".join(text[: 2 * _LONGEST].split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} ..."
