"""How many records passed of which little was judged, as the summary tells it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from pytest_msprobe.results.result import LITTLE_JUDGED


class LittleJudgedTally:
    """Counts, for the summary, the verdicts that say little, by reason."""

    def __init__(self) -> None:
        self._reasons: Counter[str] = Counter()

    def add(self, extras: Mapping[str, Any]) -> None:
        """Count one record."""
        if LITTLE_JUDGED in extras:
            self._reasons[extras[LITTLE_JUDGED]] += 1

    def lines(self) -> list[str]:
        """Return the summary's lines."""
        return [f"passed with little judged {count}: {reason}" for reason, count in self._reasons.most_common()]
