"""Parts of messages: values, counts and lists of names as text, and the known name that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable

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
