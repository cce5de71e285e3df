"""Names in a line of text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_SHOWN: Final = 8


def listed(names: Iterable[str]) -> str:
    """Return names as text: of many the first ones, and how many more there are."""
    every = list(names)
    shown, more = ", ".join(every[:_SHOWN]), len(every) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
