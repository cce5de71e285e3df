"""The page of what differs between two sides, in groups.

Importing its modules loads msgspec.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_msprobe.reports.pages import NextStep, page_number, write_page
from pytest_msprobe.reports.text import clipped

_REASON_LENGTH = 300


@dataclass(frozen=True, slots=True)
class Compared:
    """One thing that was compared: what came of it and why, its group, and both sides as text where they are short.

    ``number`` is how far the sides are apart, None where that is no number; ``details`` are pairs of a name and a text.
    ``item`` is the file and the name of the item that compared it.
    """

    name: str
    group: str
    outcome: str
    why: str
    target: str = ""
    golden: str = ""
    number: float | None = None
    details: tuple[tuple[str, str], ...] = ()
    item: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class Differences:
    """A page: what was compared, in the order of the sides; ``noun`` names one of it and ``number_title`` its number.

    Without a ``number_title`` there is no plot. ``commands`` are on one item.
    """

    title: str
    about: str
    noun: str
    rows: Sequence[Compared]
    notes: Sequence[str] = ()
    number_title: str = ""
    commands: Sequence[NextStep] = ()


def write_differences_page(path: Path, differences: Differences, *, title: str) -> None:
    """Write the page. Names and values are data and never markup. Raises OSError where the disk refuses."""
    write_page(path, __package__, _data(differences), title=title, parts=("uplot", "plot", "table"))


def _data(differences: Differences) -> dict[str, Any]:
    return {
        "title": differences.title,
        "about": differences.about,
        "notes": differences.notes,
        "noun": differences.noun,
        "numberTitle": differences.number_title,
        "commands": differences.commands,
        "rows": [
            [
                row.name, row.group, row.outcome, clipped(row.why, _REASON_LENGTH), row.target, row.golden,
                page_number(row.number), row.details, *row.item,
            ]
            for row in differences.rows
        ],
    }  # fmt: skip
