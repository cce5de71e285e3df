"""Outputs that screening cleared, as results hold them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_msprobe.results.result import decode_extra

#: Under this name a result has them.
SCREENED = "screened"


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
        """Return what was seen."""
        return (
            f"residuals at most {self.residual:.2g} of their limit ({self.kind}), "
            f"{self.sampled} of {self.numel} elements computed exactly"
        )

    def __str__(self) -> str:
        return f"{self.record} {self.path}: {self.in_words}"


def screened_of(extras: Mapping[str, Any]) -> list[ScreenedOutput]:
    """Return what the extras of a result say of screening; nothing of a record that was checked exactly."""
    return decode_extra(extras, SCREENED, list[ScreenedOutput]) or []
