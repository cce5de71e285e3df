"""What was compiled, as the summary tells it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from pytest_msprobe.modes.check.compiled.result import compiled_of


class CompiledTally:
    """Counts, for the summary, what was compiled and how long that took, and where Python ran in between."""

    def __init__(self) -> None:
        self._backend = ""
        self._compiled = 0
        self._seconds = 0.0
        self._breaks: Counter[str] = Counter()

    def add(self, extras: Mapping[str, Any]) -> None:
        """Count one record."""
        compiled = compiled_of(extras)
        if compiled is not None:
            self._backend = compiled.backend
            self._compiled += compiled.seconds > 0
            self._seconds += compiled.seconds
            self._breaks.update(compiled.breaks)

    def lines(self) -> list[str]:
        """Return the summary's lines."""
        if not self._backend:
            return []
        whole = f"{self._compiled} compiled by {self._backend} in {self._seconds:.1f} s; calls of equal shapes share it"
        return [whole, *(f"  {count} with a graph break: {reason}" for reason, count in self._breaks.most_common())]
