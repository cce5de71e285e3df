"""How many inputs were explored, as results and the summary tell it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

EXPLORED = "explored"

#: Under this name a result has on how many drawn inputs golden raised, or gave nothing to compare.
UNJUDGED = "unjudged_inputs"


class ExploredTally:
    """Counts explored inputs for the summary."""

    def __init__(self) -> None:
        self._counts: list[int] = []
        self._unjudged = 0

    def add(self, extras: Mapping[str, Any]) -> None:
        """Count the inputs of one record."""
        if EXPLORED in extras:
            self._counts.append(extras[EXPLORED])
            self._unjudged += extras.get(UNJUDGED, 0)

    def lines(self) -> list[str]:
        """Return the summary's lines."""
        if not self._counts:
            return []
        none = self._counts.count(0)
        without = f"; {none} had none that could be judged" if none else ""
        without += f"; on {self._unjudged} more golden raised or gave nothing to compare" if self._unjudged else ""
        return [f"{sum(self._counts)} inputs explored around {len(self._counts)} records{without}"]
