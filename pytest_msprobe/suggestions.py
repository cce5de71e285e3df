"""What is said of an unknown name: the name, the known one that was probably meant, and all known ones."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for an unknown name, empty where no known name is like it."""
    from difflib import get_close_matches

    found = get_close_matches(str(word)[:100], list(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


def not_one_of(word: object, known: Iterable[str]) -> str:
    """Return ``not one of x, y``, with the name that was probably meant."""
    names = list(known)
    return f"not one of {', '.join(names)}{did_you_mean(word, names)}"
