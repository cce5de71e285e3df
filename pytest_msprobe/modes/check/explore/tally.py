"""How many inputs were explored, as results and the summary tell it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

EXPLORED = "explored"


class ExploredTally:
    """Counts explored inputs for the summary."""

    def __init__(self) -> None:
        self._counts: list[int] = []

    def add(self, extras: Mapping[str, Any]) -> None:
        """Count the inputs of one record."""
        if EXPLORED in extras:
            self._counts.append(extras[EXPLORED])

    def lines(self) -> list[str]:
        """Return the summary's lines."""
        if not self._counts:
            return []
        none = self._counts.count(0)
        without = f"; {none} had none that could be judged" if none else ""
        return [f"{sum(self._counts)} inputs explored around {len(self._counts)} records{without}"]
