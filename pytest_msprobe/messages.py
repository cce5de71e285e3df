"""Messages on unknown names: the known ones, and the one that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable

from msprobe_hooks.messages import did_you_mean


def not_one_of(name: object, allowed: Iterable[str]) -> str:
    """Return ``not one of x, y``, with the name that was probably meant."""
    names = list(allowed)
    return f"not one of {', '.join(names)}{did_you_mean(name, names)}"


def unknown(kind: str, name: object, allowed: Iterable[str]) -> str:
    """Return the problem of an unknown ``kind`` of name, such as ``key``; ``name`` may be long, or no text."""
    from msprobe_standards.validation import shown

    names = list(allowed)
    return f"unknown {kind} {shown(name)}{did_you_mean(name, names) or ';'} known are {', '.join(names)}"
