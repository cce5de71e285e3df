"""Values that users gave in files and options: what a limit may be, and how a message shows any of them."""

from __future__ import annotations

_LONGEST = 200


def is_limit(value: object) -> bool:
    """Return whether a value is what a limit can be: a number that a float holds, 0 or above."""
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and float(value) >= 0
    except OverflowError:
        return False


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
