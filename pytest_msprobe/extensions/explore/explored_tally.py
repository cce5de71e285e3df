"""Numbers of inputs that were explored, as results hold them and the summary counts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_msprobe.modes.check.tallies import ExtraTally

#: Under this name a result has on how many inputs around the recorded or given ones it was judged.
EXPLORED = "explored"

#: Under this name a result has on how many drawn inputs golden raised, or gave nothing to compare.
UNJUDGED = "unjudged_inputs"

#: Under this name a result has how many of these had a size at which a kernel begins a unit of work almost empty.
AIMED = "aimed_sizes"


class ExploredTally(ExtraTally):
    """Counts the records around which inputs were explored, by how many."""

    extra = EXPLORED

    def __init__(self) -> None:
        super().__init__()
        self._unjudged = 0
        self._aimed = 0

    def add(self, extras: Mapping[str, Any]) -> None:
        """Count the inputs of one record."""
        super().add(extras)
        self._unjudged += extras.get(UNJUDGED, 0)
        self._aimed += extras.get(AIMED, 0)

    def lines(self) -> list[str]:
        """Return the summary's line."""
        if not self._counts:
            return []
        inputs, records, none = sum(self._counts.elements()), self._counts.total(), self._counts[0]
        without = f"; {none} had none that could be judged" if none else ""
        without += f"; on {self._unjudged} more golden raised or gave nothing to compare" if self._unjudged else ""
        around = f"{records} record{'s' * (records != 1)}"
        lines = [f"{inputs} input{'s' * (inputs != 1)} explored around {around}{without}"]
        if self._aimed:
            lines.append(f"{self._aimed} had a size just over 128 or 2^16 elements; none 2^31, which take gigabytes")
        return lines
