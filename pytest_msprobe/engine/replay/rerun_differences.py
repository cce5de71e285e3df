"""Differences between runs of a call, whole or on parts of its batch, as data that is read without torch."""

from __future__ import annotations

import msgspec

#: What is said of a failure in place of a cause, where the same call passes on the same inputs.
PASSED_AGAIN = "passed when run again"


class UnstableOutput(msgspec.Struct, frozen=True):
    """An output that was not the same, bit by bit, in every run.

    ``runs`` of the runs differ from the first one, in ``unequal`` of the ``elements`` taken together and by at most
    ``largest``: inf where one is not finite and the other is another value, or where dtypes or shapes differ.
    """

    path: str
    runs: int
    unequal: int
    elements: int
    largest: float

    @property
    def share(self) -> float:
        """The share of the elements that differ."""
        return self.unequal / self.elements if self.elements else 1.0

    def among(self, times: int) -> str:
        """Return this in words, for so many runs."""
        return (
            f"{self.runs} of {times - 1} repeated runs differ from the first, in {self.unequal} of {self.elements} "
            f"elements ({100 * self.share:.3g} %) and by at most {self.largest:.6g}"
        )


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
