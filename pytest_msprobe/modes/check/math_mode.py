"""How many records were judged in a mode of the device, as the summary tells it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from pytest_msprobe.results.result import MATH_MODE


class MathModeTally:
    """Counts, for the summary, the verdicts in which math modes took part, by mode."""

    def __init__(self) -> None:
        self._modes: Counter[str] = Counter()

    def add(self, extras: Mapping[str, Any]) -> None:
        """Count one record."""
        if MATH_MODE in extras:
            self._modes[extras[MATH_MODE]] += 1

    def lines(self) -> list[str]:
        """Return the summary's lines."""
        return [f"judged under {mode}, as the device says: {count}" for mode, count in self._modes.most_common()]
