"""How many elements of a record's results differ from golden where torch and the language leave them open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pytest_msprobe.results.result import DirectionResult, decode_extra

_LEFT_OPEN = "left_open"


class LeftOpen(msgspec.Struct, frozen=True):
    """Of so many elements of the results some are left open; ``why`` says for which inputs."""

    elements: int
    of: int
    why: str

    def __str__(self) -> str:
        return f"{self.elements} of {self.of} elements differ where any value is right ({self.why})"


def with_left_open(result: DirectionResult, found: LeftOpen) -> DirectionResult:
    """Return a result with what was left open of it."""
    return result.with_extra(_LEFT_OPEN, msgspec.to_builtins(found))


def left_open_of(extras: Mapping[str, Any]) -> LeftOpen | None:
    """Return what was left open of a record's results; None where nothing was."""
    return decode_extra(extras, _LEFT_OPEN, LeftOpen)
