"""Runs or cards side by side: where they are not alike, and which one is unlike all others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_msprobe.reports.worst_margins import Worst, is_worse


@dataclass(frozen=True, slots=True)
class Row:
    """One direction of an API: its worst record in each column, None where none was judged."""

    name: str
    worst: tuple[Worst | None, ...]

    @property
    def is_alike(self) -> bool:
        """Whether it came to the same in all columns, but for noise."""
        return _are_alike(self.worst)

    @property
    def odd(self) -> int | None:
        """The one column that is unlike the others, which are alike; None where there is none such."""
        if len(self.worst) < 3 or self.is_alike:
            return None
        places = range(len(self.worst))
        odd = [place for place in places if _are_alike(self.worst[:place] + self.worst[place + 1 :])]
        return odd[0] if len(odd) == 1 else None

    @property
    def rank(self) -> tuple[bool, int, float]:
        """What rows are ordered by: those that are not alike, then those that failed, then by margin."""
        known = [worst for worst in self.worst if worst is not None]
        severity, margin = max(((worst.severity, worst.margin) for worst in known), default=(0, 0.0))
        return self.is_alike, -severity, -margin


def side_by_side(columns: Sequence[Mapping[str, Worst]]) -> list[Row]:
    """Return a row for each API that any column has, those that are not alike first."""
    names = dict.fromkeys(name for column in columns for name in column)
    rows = (Row(name, tuple(column.get(name) for column in columns)) for name in names)
    return sorted(rows, key=lambda row: row.rank)


def odd_columns(rows: Sequence[Row]) -> Counter[int]:
    """Return by how many rows each column is unlike the others, the most first."""
    return Counter(row.odd for row in rows if row.odd is not None)


def _are_alike(worst: Sequence[Worst | None]) -> bool:
    known = [one for one in worst if one is not None]
    if not known:
        return True
    least = min(known, key=lambda one: (one.severity, one.margin))
    return len(known) == len(worst) and not any(is_worse(one, least) for one in known)
