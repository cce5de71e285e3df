"""Outcome of a run with perturbed inputs, as results, reports and the free benchmark's table show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pytest_msprobe.results.result import DirectionResult, decode_extra

_PERTURBED = "perturbed"


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

    ``accuracy`` is the outcome of the record's verdict where what changed too much made it a warning. ``again`` says
    what else further runs came to, where the perturbation is not the cause. ``left_out`` is why it was not perturbed.
    """

    api: str
    perturbation: str
    stage: str
    ratio: float | None = None
    inconsistent: tuple[InconsistentOutput, ...] = ()
    accuracy: str = ""
    left_out: str = ""
    again: str = ""

    def __str__(self) -> str:
        again = [self.again] if self.again else []
        return f"perturbed by {self.perturbation}, {'; '.join([*map(str, self.inconsistent), *again])}"


def with_perturbed(result: DirectionResult, perturbed: Perturbed) -> DirectionResult:
    """Return a result with what came of perturbed inputs."""
    return result.with_extra(_PERTURBED, msgspec.to_builtins(perturbed))


def perturbed_of(extras: Mapping[str, Any]) -> Perturbed | None:
    """Return what the extras of a result say of perturbed inputs."""
    return decode_extra(extras, _PERTURBED, Perturbed)
