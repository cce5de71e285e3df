"""Comparison tables as CSV files."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from pathlib import Path

from pytest_msprobe.modes.compare.reports.table_columns import Cell, Column, cells
from pytest_msprobe.modes.compare.rows import ComparedCall

# What a spreadsheet program takes for a formula, in either width.
_FORMULA = re.compile("[\t\r=+\\-@\uff0b\uff0d\uff1d\uff05\uff20%]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?%?|[+-]?(inf|nan)|-1", re.IGNORECASE)


def write_csv(path: Path, calls: Iterable[ComparedCall], layout: list[Column]) -> int:
    """Write a table, row by row, and return the number of its rows. Raises OSError where the disk refuses."""
    rows = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([title for title, _ in layout])
        for call in calls:
            for row in cells(call, layout):
                writer.writerow([neutral(cell) for cell in row])
                rows += 1
    return rows


def neutral(cell: Cell) -> Cell:
    """Return a cell that no spreadsheet program takes for a formula: an apostrophe goes before what looks like one."""
    if isinstance(cell, str) and _FORMULA.match(cell) and not _NUMBER.fullmatch(cell):
        return f"'{cell}"
    return cell
