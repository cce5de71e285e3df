"""Comparison tables as workbooks: coloured by rules, written row by row, split where a sheet is full.

XlsxWriter makes the workbook: styles, titles, widths. The rows are put into its sheets here, as the millions of cells
hold nothing but text and numbers: that takes a third of the time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import lru_cache
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import BinaryIO, Literal, TypeAlias
from zipfile import ZIP_DEFLATED, ZipFile

from pytest_msprobe.modes.compare.reports.table_columns import Cell, Column, cells
from pytest_msprobe.modes.compare.rows import ComparedCall, DataMode, Row

Colour: TypeAlias = Literal["", "yellow", "red"]

# msprobe's: a row with a greater difference is red.
_HUGE = 1e10


def colours(call: ComparedCall) -> list[Colour]:
    """Return the colour of each row of a call; red wins over yellow."""
    inputs = [row for row in call.rows if row.group in ("input", "parameters") and _is_measured(row, call.mode)]
    return [_colour(row, inputs, call.mode) for row in call.rows]


def _colour(row: Row, inputs: list[Row], mode: DataMode) -> Colour:
    if row.outcome == "fail" or _is_alarming(row, mode):
        return "red"
    grown = set(_grown(row, inputs, mode)) if row.group == "output" and _is_measured(row, mode) else set()
    if "red" in grown:
        return "red"
    return "yellow" if row.outcome == "warn" or grown else ""


def _is_alarming(row: Row, mode: DataMode) -> bool:
    if mode == "md5" or row.target is None or not row.target.is_tensor or row.target.statistics is None:
        return False
    most, least = row.target.statistics[:2]
    if any(value is not None and not math.isfinite(value) for value in (most, least)):
        return True
    return abs(_error(row, mode) or 0.0) > _HUGE


def _is_measured(row: Row, mode: DataMode) -> bool:
    both = row.target, row.golden
    return mode != "md5" and _error(row, mode) is not None and all(one and one.statistics for one in both)


def _error(row: Row, mode: DataMode) -> float | None:
    return row.metrics.get("max_abs_err" if mode == "tensor" else "max_diff")


def _grown(row: Row, inputs: list[Row], mode: DataMode) -> Iterator[Colour]:
    for before in inputs:
        error, earlier = abs(_error(row, mode) or 0.0), abs(_error(before, mode) or 0.0)
        if earlier <= error and _order(error) - _order(earlier) >= 1:
            yield "yellow"
        if mode == "tensor":
            yield from _tensor_rules(before, row)
        else:
            yield from _statistics_rules(before, row)


def _tensor_rules(before: Row, row: Row) -> Iterator[Colour]:
    ratio_in, ratio_out = before.metrics.get("rel_err_thousandth"), row.metrics.get("rel_err_thousandth")
    if ratio_in is not None and ratio_out is not None:
        if ratio_in > 0.9 and ratio_out < 0.6:
            yield "red"
        elif ratio_in - ratio_out > 0.1:
            yield "yellow"
    cosine_in, cosine_out = before.metrics.get("cosine_sim"), row.metrics.get("cosine_sim")
    if cosine_in is not None and cosine_out is not None and cosine_in - cosine_out > 0.1:
        yield "yellow"


def _statistics_rules(before: Row, row: Row) -> Iterator[Colour]:
    relative_in, relative_out = before.metrics.get("max_rel_diff", 0.0), row.metrics.get("max_rel_diff", 0.0)
    if relative_out > 0.5:
        yield "red"
    elif relative_out > 0.1 and relative_in < 0.01:
        yield "yellow"


def _order(error: float) -> float:
    return math.log10(error) if math.isfinite(error) and error >= 1 else 0.0 if error < 1 else math.inf


#: Rows that a sheet can hold, its title row among them.
SHEET_ROWS = 1_048_576
# What a cell can hold: so many UTF-16 units of two bytes.
_CELL_BYTES = 2 * 32_767
_FILLS: dict[Colour, str] = {"red": "#FF0000", "yellow": "#FFFF00"}
_WIDTHS = {"NPU Name": 48, "Bench Name": 48, "Err_message": 40, "NPU_Stack_Info": 24, "Data_name": 24}

_SHEET_FILE = "xl/worksheets/sheet{}.xml"
# What XML cannot hold, and what looks like the way in which a workbook writes that.
_ESCAPED = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]|_(?=x[0-9A-Fa-f]{4}_)")
_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_LAST_ROW, _STYLE = re.compile(rb'(<dimension ref="A1:[A-Z]+)\d+(")'), re.compile(rb' s="(\d+)"')
# Of 9: the usual 6 saves a quarter of the size, for a third more of the whole time.
_COMPRESSION = 1
_COPIED_AT_ONCE = 1 << 20


def write_xlsx(path: Path, calls: Iterable[ComparedCall], layout: list[Column], sheet_rows: int = SHEET_ROWS) -> int:
    """Write a workbook and return the number of its rows. Raises OSError where the disk refuses.

    Text is written as text, so that no cell becomes a formula or a link.
    """
    rows = _coloured(calls, layout)
    styles = _around_rows(_titled_workbook(layout, 1).read(_SHEET_FILE.format(1)))[1]
    # A workbook begins with the number of its sheets, a sheet with that of its rows.
    with ExitStack() as stack:
        sheets: list[tuple[BinaryIO, int]] = []
        for first in rows:
            lines = stack.enter_context(TemporaryFile(dir=path.parent))
            own = chain([first], islice(rows, sheet_rows - 2))
            sheets.append((lines, _write_lines(lines, own, len(layout), styles)))
        if not sheets:
            sheets.append((BytesIO(), 0))
        _write_book(path, _titled_workbook(layout, len(sheets)), sheets)
    return sum(count for _, count in sheets)


def _write_book(path: Path, book: ZipFile, sheets: list[tuple[BinaryIO, int]]) -> None:
    by_name = {_SHEET_FILE.format(number): sheet for number, sheet in enumerate(sheets, start=1)}
    with ZipFile(path, "w", ZIP_DEFLATED, compresslevel=_COMPRESSION) as file:
        for name in book.namelist():
            if name not in by_name:
                file.writestr(name, book.read(name))
                continue
            lines, count = by_name[name]
            head, _, tail = _around_rows(book.read(name))
            lines.seek(0)
            with file.open(name, "w", force_zip64=True) as sheet:
                sheet.write(_LAST_ROW.sub(rb"\g<1>%d\2" % (count + 1), head, 1))
                copyfileobj(lines, sheet, _COPIED_AT_ONCE)
                sheet.write(tail)


def _coloured(calls: Iterable[ComparedCall], layout: list[Column]) -> Iterator[tuple[list[Cell], Colour]]:
    for call in calls:
        yield from zip(cells(call, layout), colours(call), strict=True)


def _titled_workbook(layout: list[Column], sheets: int) -> ZipFile:
    """Return a workbook of sheets with titles and, in place of the rows, one cell of each colour."""
    import xlsxwriter

    content = BytesIO()
    workbook = xlsxwriter.Workbook(content, {"in_memory": True})
    bold = workbook.add_format({"bold": True})
    fills = [workbook.add_format({"bg_color": fill}) for fill in _FILLS.values()]
    for number in range(1, sheets + 1):
        sheet = workbook.add_worksheet("Sheet" if number == 1 else f"part_{number}")
        for place, (title, _) in enumerate(layout):
            sheet.set_column(place, place, _WIDTHS.get(title, 14))
            sheet.write_string(0, place, title, bold)
        for place, fill in enumerate(fills):
            sheet.write_blank(1, place, None, fill)
        sheet.freeze_panes(1, 1)
    workbook.close()
    return ZipFile(content)


def _around_rows(sheet: bytes) -> tuple[bytes, dict[Colour, str], bytes]:
    """Return what comes before the rows, the attribute that each colour is in this workbook, and what comes after."""
    head, mark, rest = sheet.partition(b'<row r="2"')
    samples, end, tail = rest.partition(b"</row>")
    assert mark
    assert end
    styles = {colour: f' s="{number.decode()}"' for colour, number in zip(_FILLS, _STYLE.findall(samples), strict=True)}
    return head, {"": "", **styles}, tail


def _write_lines(
    file: BinaryIO, rows: Iterable[tuple[list[Cell], Colour]], width: int, styles: dict[Colour, str]
) -> int:
    """Write rows as they stand in a sheet, from its second on, and return their number."""
    from xlsxwriter.utility import xl_col_to_name

    letters = [xl_col_to_name(column) for column in range(width)]
    place = 1
    for place, (row, colour) in enumerate(rows, start=2):
        style = styles[colour]
        line = [
            f'<c r="{letter}{place}"{style}{_text(cell) if isinstance(cell, str) else f"><v>{cell!r}</v></c>"}'
            for letter, cell in zip(letters, row, strict=True)
        ]
        file.write(f'<row r="{place}">{"".join(line)}</row>'.encode())
    return place - 1


# Dtypes, shapes and most words stand in thousands of cells.
@lru_cache(maxsize=1024)
def _text(cell: str) -> str:
    """Return the rest of a cell of text, from the attribute of its type on."""
    units = cell.encode("utf-16-le", "surrogatepass")
    if len(units) > _CELL_BYTES:
        cell = units[:_CELL_BYTES].decode("utf-16-le", "ignore")
    text = _ESCAPED.sub(lambda match: f"_x{ord(match[0]):04X}_", cell).translate(_MARKUP)
    space = ' xml:space="preserve"' if text != text.strip() else ""
    return f' t="inlineStr"><is><t{space}>{text}</t></is></c>'
