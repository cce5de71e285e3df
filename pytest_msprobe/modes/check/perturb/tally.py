"""What was perturbed and what changed too much, as the summary tells it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from pytest_msprobe.results.perturbed import perturbed_of

_SHOWN = 5


class PerturbedTally:
    """Counts, for the summary, what was perturbed, which APIs changed too much, and why others were not perturbed."""

    def __init__(self) -> None:
        self._perturbation = ""
        self._perturbed = 0
        self._inconsistent: Counter[str] = Counter()
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
        self._inconsistent.update([perturbed.api] if perturbed.inconsistent else [])

    def lines(self) -> list[str]:
        """Return the summary's lines."""
        if not self._perturbation:
            return []
        changed = self._inconsistent.total()
        lines = [f"{self._perturbed} perturbed by {self._perturbation}, {changed} of them changed too much"]
        lines += [f"  {count} {api}" for api, count in self._inconsistent.most_common(_SHOWN)]
        hidden = len(self._inconsistent) - _SHOWN
        lines += [f"  and {hidden} more API{'s' * (hidden > 1)}"] if hidden > 0 else []
        return lines + [f"  {count} not perturbed: {reason}" for reason, count in self._left_out.most_common()]
