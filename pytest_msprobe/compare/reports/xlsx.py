"""Comparison tables as workbooks: coloured, written row by row in constant memory, split where a sheet is full."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_msprobe.compare.reports.highlight import Colour, colours
from pytest_msprobe.compare.reports.layout import Cell, Column, cells
from pytest_msprobe.compare.rows import ComparedCall

if TYPE_CHECKING:
    from xlsxwriter import Workbook
    from xlsxwriter.worksheet import Worksheet

#: Rows that a sheet can hold, its title row among them.
SHEET_ROWS = 1_048_576
# What a cell can hold.
_CELL_CHARACTERS = 32_767
_FILLS: dict[Colour, str] = {"red": "#FF0000", "yellow": "#FFFF00"}
_WIDTHS = {"NPU Name": 48, "Bench Name": 48, "Err_message": 40, "NPU_Stack_Info": 24, "Data_name": 24}


def write_xlsx(path: Path, calls: Iterable[ComparedCall], layout: list[Column], sheet_rows: int = SHEET_ROWS) -> int:
    """Write a workbook and return the number of its rows. Raises OSError where the disk refuses.

    Text is written as text, so that no cell becomes a formula or a link.
    """
    import xlsxwriter
    from xlsxwriter.exceptions import FileCreateError

    options = {"constant_memory": True, "tmpdir": str(path.parent), "in_memory": False}
    workbook = xlsxwriter.Workbook(str(path), options)
    rows = 0
    try:
        formats = {colour: workbook.add_format({"bg_color": fill}) for colour, fill in _FILLS.items()}
        sheets = _sheets(workbook, layout)
        sheet, place = next(sheets), 1
        for row, colour in _coloured(calls, layout):
            if place == sheet_rows:
                sheet, place = next(sheets), 1
            _write_row(sheet, place, row, formats.get(colour))
            place += 1
            rows += 1
    finally:
        try:
            workbook.close()
        except FileCreateError as error:
            raise OSError(str(error)) from None
    return rows


def _coloured(calls: Iterable[ComparedCall], layout: list[Column]) -> Iterator[tuple[list[Cell], Colour]]:
    for call in calls:
        yield from zip(cells(call, layout), colours(call), strict=True)


def _sheets(workbook: Workbook, layout: list[Column]) -> Iterator[Worksheet]:
    bold = workbook.add_format({"bold": True})
    for number in range(1, SHEET_ROWS):
        sheet = workbook.add_worksheet("Sheet" if number == 1 else f"part_{number}")
        for place, (title, _) in enumerate(layout):
            sheet.set_column(place, place, _WIDTHS.get(title, 14))
            sheet.write_string(0, place, title, bold)
        sheet.freeze_panes(1, 1)
        yield sheet


def _write_row(sheet: Worksheet, place: int, row: list[Cell], fill: Any) -> None:
    for column, cell in enumerate(row):
        if isinstance(cell, str):
            sheet.write_string(place, column, cell[:_CELL_CHARACTERS], fill)
        else:
            sheet.write_number(place, column, cell, fill)
