"""What was perturbed and what moved, as the summary tells it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from pytest_msprobe.results.perturbed import perturbed_of


class PerturbedTally:
    """Counts, for the summary, the records that were perturbed, those that moved too far, and why others were not."""

    def __init__(self) -> None:
        self._perturbation = ""
        self._perturbed = 0
        self._moved = 0
        self._left_out: Counter[str] = Counter()

    def add(self, extras: Mapping[str, Any]) -> None:
        """Count one record."""
        perturbed = perturbed_of(extras)
        if perturbed is None:
            return
        self._perturbation = perturbed.perturbation
        if perturbed.left_out:
            self._left_out[perturbed.left_out] += 1
            return
        self._perturbed += 1
        self._moved += bool(perturbed.moved)

    def lines(self) -> list[str]:
        """Return the summary's lines."""
        if not self._perturbation:
            return []
        lines = [
            f"{self._perturbed} perturbed by {self._perturbation}, {self._moved} of them moved by more than is allowed"
        ]
        return lines + [f"  {count} not perturbed: {reason}" for reason, count in self._left_out.most_common()]
