"""Results of a call on parts of its batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pytest_msprobe.results.result import DirectionResult, decode_extra

_BATCH_INVARIANCE = "batch_invariance"


class Variation(msgspec.Struct, frozen=True):
    """An output whose rows are not the same, bit by bit, in every part of the batch.

    ``parts`` of the parts differ; in the first of them, ``rows``, it is ``unequal`` of ``elements``. ``largest`` is the
    largest difference in any part: inf where one is not finite and the other is another value, or where forms differ.
    """

    path: str
    parts: int
    rows: str
    unequal: int
    elements: int
    largest: float

    def joined(self, other: Variation) -> Variation:
        """Return the variation of this part and of one more."""
        return msgspec.structs.replace(self, parts=self.parts + 1, largest=max(self.largest, other.largest))

    def among(self, parts: int) -> str:
        """Return this in words, for so many parts."""
        return (
            f"{self.parts} of {parts} parts of the batch differ from the whole, first {self.rows}, in "
            f"{self.unequal} of {self.elements} elements; by at most {self.largest:.6g}"
        )


class BatchInvariance(msgspec.Struct, frozen=True):
    """A call of ``api`` that ran on so many ``parts`` of its batch, and what differed.

    ``left_out`` is why it was not run on any.
    """

    api: str
    parts: int = 0
    variations: tuple[Variation, ...] = ()
    left_out: str = ""

    def __str__(self) -> str:
        return "; ".join(f"{variation.path}: {variation.among(self.parts)}" for variation in self.variations)


def with_batch_invariance(result: DirectionResult, invariance: BatchInvariance) -> DirectionResult:
    """Return a result with what came of running its call on parts of the batch."""
    return result.with_extra(_BATCH_INVARIANCE, msgspec.to_builtins(invariance))


def batch_invariance_of(extras: Mapping[str, Any]) -> BatchInvariance | None:
    """Return what the extras of a result have of parts of the batch."""
    return decode_extra(extras, _BATCH_INVARIANCE, BatchInvariance)
