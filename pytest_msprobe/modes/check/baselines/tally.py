"""How often a baseline's tensors did not judge, as the summary tells it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_msprobe.engine.replay.trials.baseline_protocol import TENSORS_UNUSED


class UnusedTensorsTally:
    """Counts, for the summary, the records that were judged by numbers in place of tensors."""

    def __init__(self) -> None:
        self._problems: list[str] = []

    def add(self, extras: Mapping[str, Any]) -> None:
        """Count one record."""
        if TENSORS_UNUSED in extras:
            self._problems.append(extras[TENSORS_UNUSED])

    def lines(self) -> list[str]:
        """Return the summary's lines."""
        if not self._problems:
            return []
        others = " (and others)" if len(self._problems) > 1 else ""
        return [
            f"{len(self._problems)} judged by the baseline's numbers, not by its tensors: {self._problems[0]}{others}"
        ]
