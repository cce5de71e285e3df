"""Parts of messages: unknown names with the known one that was probably meant, and counted nouns."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for an unknown name, empty where no known name is like it."""
    from difflib import get_close_matches

    found = get_close_matches(str(name)[:100], list(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


def not_one_of(name: object, known: Iterable[str]) -> str:
    """Return ``not one of x, y``, with the name that was probably meant."""
    names = list(known)
    return f"not one of {', '.join(names)}{did_you_mean(name, names)}"


def unknown(kind: str, name: object, known: Iterable[str]) -> str:
    """Return the problem of an unknown ``kind`` of name, such as ``key``; ``name`` may be long, or no text."""
    from msprobe_standards.validation import shown

    names = list(known)
    return f"unknown {kind} {shown(name)}{did_you_mean(name, names) or ';'} known are {', '.join(names)}"


def counted(number: int, noun: str) -> str:
    """Return ``1 file`` or ``2 files``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
