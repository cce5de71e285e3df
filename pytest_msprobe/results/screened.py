"""What screening saw of a record that it cleared, as reports show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from pytest_msprobe.results.result import DirectionResult, decode_extra

_SCREENED = "screened"


@dataclass(frozen=True, slots=True)
class ScreenedOutput:
    """An output of a ``record`` that was cleared: the worst ``residual`` as a share of its limit, and what it is of.

    ``sampled`` of ``numel`` elements were computed exactly. ``operations`` is what the exact check would have computed.
    """

    record: str
    path: str
    residual: float
    kind: str
    sampled: int
    numel: int
    operations: int

    @property
    def in_words(self) -> str:
        """What was seen."""
        return (
            f"residuals at most {self.residual:.2g} of their limit ({self.kind}), "
            f"{self.sampled} of {self.numel} elements computed exactly"
        )

    def __str__(self) -> str:
        return f"{self.record} {self.path}: {self.in_words}"


def with_screened(result: DirectionResult, outputs: Sequence[ScreenedOutput]) -> DirectionResult:
    """Return the result of a record with what was seen of its outputs."""
    return result.with_extra(_SCREENED, msgspec.to_builtins(list(outputs)))


def screened_of(extras: Mapping[str, Any]) -> list[ScreenedOutput]:
    """Return what the extras of a result say of screening; nothing of a record that was checked exactly."""
    return decode_extra(extras, _SCREENED, list[ScreenedOutput]) or []
