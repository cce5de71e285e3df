"""Outcome of repeated runs on the same inputs, as results and reports show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pytest_msprobe.results.result import DirectionResult, decode_extra

#: What is said of a failure in place of a cause, where the same call passes on the same inputs.
PASSED_AGAIN = "passed when run again"

_REPEATS = "repeats"


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


class Repeats(msgspec.Struct, frozen=True):
    """A call of ``api`` that ran ``times`` times: what differed, and whether the policy knows that it does.

    ``left_out`` is why it was not repeated.
    """

    api: str
    times: int
    unstable: tuple[UnstableOutput, ...] = ()
    is_known: bool = False
    left_out: str = ""

    def __str__(self) -> str:
        note = " (known to the policy)" if self.is_known else ""
        return "; ".join(f"{output.path}: {output.among(self.times)}" for output in self.unstable) + note


def with_repeats(result: DirectionResult, repeats: Repeats) -> DirectionResult:
    """Return a result with what came of repeated runs."""
    return result.with_extra(_REPEATS, msgspec.to_builtins(repeats))


def repeats_of(extras: Mapping[str, Any]) -> Repeats | None:
    """Return what the extras of a result say of repeated runs."""
    return decode_extra(extras, _REPEATS, Repeats)
