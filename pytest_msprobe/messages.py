"""Parts of messages: unknown names with what was probably meant, and counted nouns."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_msprobe.suggestions import did_you_mean


def unknown(kind: str, name: object, known: Iterable[str]) -> str:
    """Return the problem of an unknown ``kind`` of name, such as ``key``; what is quoted may be long or no text."""
    from msprobe_standards.validation import shown

    names = list(known)
    return f"unknown {kind} {shown(name)}{did_you_mean(name, names) or ';'} known are {', '.join(names)}"


def counted(number: int, noun: str) -> str:
    """Return ``1 file`` or ``2 files``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
