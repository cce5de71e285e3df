"""Outcome of a run with perturbed inputs, as results, reports and the free benchmark's table show it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from pytest_msprobe.results.result import DirectionResult, decode_extra

_PERTURBED = "perturbed"

# How many of the APIs that changed too much are listed.
_SHOWN = 5


class InconsistentOutput(msgspec.Struct, frozen=True):
    """An output that changed by more than it should; ``index`` is its place among several.

    ``ratio`` of its two values is over ``threshold``; both are None where no ratio judges, or where a sign flipped.
    """

    index: int | None
    dtype: str
    shape: tuple[int, ...]
    ratio: float | None = None
    threshold: float | None = None
    flips_sign: bool = False

    def __str__(self) -> str:
        place = "the result" if self.index is None else f"result {self.index}"
        if self.flips_sign:
            return f"{place} changes its sign"
        if self.ratio is None:
            return f"{place} changes by more than its dtype's precision"
        return f"{place} changes by a ratio of {self.ratio:.7g}, where {self.threshold:.7g} is allowed"


class Perturbed(msgspec.Struct, frozen=True):
    """A call of ``api``, perturbed at a ``stage``, forward or backward: the largest ratio, and what changed too much.

    ``again`` says what else further runs came to, where the perturbation is not the cause. ``left_out`` is why it was
    not perturbed.
    """

    api: str
    perturbation: str
    stage: str
    ratio: float | None = None
    inconsistent: tuple[InconsistentOutput, ...] = ()
    left_out: str = ""
    again: str = ""

    def __str__(self) -> str:
        again = [self.again] if self.again else []
        return f"perturbed by {self.perturbation}, {'; '.join([*map(str, self.inconsistent), *again])}"


def with_perturbed(result: DirectionResult, perturbed: Perturbed) -> DirectionResult:
    """Return a result with what came of perturbed inputs."""
    result = result.with_extra(_PERTURBED, msgspec.to_builtins(perturbed))
    return result.with_property(_PERTURBED, str(perturbed)) if perturbed.inconsistent else result


def perturbed_of(extras: Mapping[str, Any]) -> Perturbed | None:
    """Return what the extras of a result say of perturbed inputs."""
    return decode_extra(extras, _PERTURBED, Perturbed)


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
        lines += [f"  and {hidden} more"] if hidden > 0 else []
        return lines + [f"  {count} not perturbed: {reason}" for reason, count in self._left_out.most_common()]
