"""The numbers that are recorded of a tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Number: TypeAlias = float | int | bool


@dataclass(slots=True)
class Statistics:
    """The numbers of one tensor; the finite extrema are there only where the plain ones are not finite."""

    max: Number | None = None
    min: Number | None = None
    mean: Number | None = None
    norm: Number | None = None
    finite_max: float | None = None
    finite_min: float | None = None
    checksum: str | None = None
