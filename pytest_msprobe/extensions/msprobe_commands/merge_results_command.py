"""``pytest-msprobe msprobe merge-results``: tables of many ranks in a workbook: a sheet per metric, columns by rank."""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from msprobe_hooks.messages import counted, listed
from msprobe_hooks.regular_files import open_regular, require_regular
from msprobe_standards.validation import shown
from pytest_msprobe.errors import CommandError, unknown
from pytest_msprobe.reports.text import one_line
from pytest_msprobe.run.valid_rows_file import read_yaml_rules
from pytest_msprobe.storage.files import atomic_write

TENSOR_COLUMNS = (
    "Cosine",
    "EucDist",
    "MaxAbsErr",
    "MaxRelativeErr",
    "One Thousandth Err Ratio",
    "Five Thousandths Err Ratio",
    "Requires_grad Consistent",
)
STATISTICS_COLUMNS = (
    "Max diff",
    "Min diff",
    "Mean diff",
    "L2norm diff",
    "MaxRelativeErr",
    "MinRelativeErr",
    "MeanRelativeErr",
    "NormRelativeErr",
    "Requires_grad Consistent",
)
# Titles by what a configuration may call them; msprobe's manual has a name of its own for one.
_TITLES = {title.casefold(): title for title in (*TENSOR_COLUMNS, *STATISTICS_COLUMNS)} | {"norm diff": "L2norm diff"}

_NAME = re.compile(r"compare_result_rank(?P<target>\d*)(-rank(?P<golden>\d*))?_\d{14}\.(xlsx|csv)")
# Where a metric could not be taken, the values themselves show what was compared.
_NO_NUMBER = frozenset({"N/A", "unsupported", "Nan"})
_SHOWN_INSTEAD = ("NPU max", "Bench max")


@dataclass(frozen=True, slots=True)
class Configuration:
    """Selection for merging: prefixes of names (``Distributed.all_reduce``) and titles of metrics, none for all."""

    apis: tuple[str, ...]
    metrics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """One rank's table. ``rank`` is its column's title; ``order`` sorts ranks by number."""

    path: Path
    rank: str
    order: tuple[int, int]


def read_configuration(path: Path) -> Configuration:
    """Read a configuration. Raises CommandError that names the key and what is allowed."""
    content = read_yaml_rules(path, CommandError)
    if not isinstance(content, dict):
        raise CommandError("expected the key api, and optionally compare_index", file=path)
    apis, metrics = content.get("api"), content.get("compare_index") or []
    if not _are_words(apis) or not apis:
        raise CommandError(f"api: {shown(apis)} is not a list of names such as Distributed.all_reduce", file=path)
    if not _are_words(metrics):
        raise CommandError(f"compare_index: {shown(metrics)} is not a list of titles", file=path)
    for metric in metrics:
        if metric.casefold() not in _TITLES:
            titles = dict.fromkeys(_TITLES.values())
            raise CommandError(f"compare_index: {unknown('title', metric, titles)}", file=path)
    return Configuration(tuple(apis), tuple(dict.fromkeys(_TITLES[metric.casefold()] for metric in metrics)))


def _are_words(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) and value for value in values)


def find_tables(folder: Path) -> list[Table]:
    """Return the tables of a folder, by rank. Raises CommandError where there are fewer than two, or two of a rank."""
    if not folder.is_dir():
        raise CommandError("not a folder of comparison tables", file=folder)
    tables = _tables_of(folder)
    if len(tables) < 2:
        below = listed(path.name for path in sorted(folder.iterdir(), key=_by_number) if _has_tables(path))
        example = "compare_result_rank0-rank0_20260131120000.csv (or .xlsx)"
        remedy = f"its folders have tables, pass one of them: {below}" if below else ""
        raise CommandError(
            f"{counted(len(tables), 'table')} of ranks",
            file=folder,
            remedy=remedy or f"expected two or more, named like {example}",
        )
    return sorted(tables.values(), key=lambda table: table.order)


def _has_tables(folder: Path) -> bool:
    try:
        return sum(map(_is_of_rank, folder.iterdir())) > 1
    except OSError:
        return False


def _is_of_rank(path: Path) -> bool:
    match = _NAME.fullmatch(path.name)
    return match is not None and bool(match["target"])


def _by_number(path: Path) -> tuple[int, str]:
    digits = re.search(r"[0-9]{1,9}$", path.name)
    return int(digits[0]) if digits else -1, path.name


def _tables_of(folder: Path) -> dict[str, Table]:
    tables: dict[str, Table] = {}
    for path in sorted(folder.iterdir()):
        match = _NAME.fullmatch(path.name)
        if match is None or not match["target"]:
            continue
        target, golden = int(match["target"]), int(match["golden"] or match["target"])
        rank = f"rank{target}" if target == golden else f"rank{target}-rank{golden}"
        if rank in tables:
            raise CommandError(f"{tables[rank].path.name} is of {rank}, too", file=path, remedy="keep one of them")
        tables[rank] = Table(path, rank, (target, golden))
    return tables


@dataclass(frozen=True, slots=True)
class Merged:
    """Metric to name to rank to cell; ``unused`` are the prefixes that no table has."""

    ranks: tuple[str, ...]
    sheets: dict[str, dict[str, dict[str, Any]]]
    unused: tuple[str, ...]


def merge(tables: Sequence[Table], configuration: Configuration) -> Merged:
    """Merge tables. Raises CommandError where they are of different kinds, or hold nothing that was asked for."""
    metrics: tuple[str, ...] = ()
    sheets: dict[str, dict[str, dict[str, Any]]] = {}
    used: set[str] = set()
    for table in tables:
        rows = read_table(table.path)
        titles = [str(title) for title in next(rows, [])]
        offered = _metrics_of(table.path, titles, configuration)
        if metrics and offered != metrics:
            raise CommandError(
                f"other metrics than {tables[0].path.name}", file=table.path, remedy="merge tables of one kind"
            )
        metrics = offered
        for metric in metrics:
            sheets.setdefault(metric, {})
        _take_rows(rows, titles, table.rank, configuration.apis, sheets, used)
    unused = tuple(api for api in configuration.apis if api not in used)
    if not used:
        raise CommandError(f"no table holds {', '.join(unused)}")
    return Merged(tuple(table.rank for table in tables), sheets, unused)


def _take_rows(
    rows: Iterable[Sequence[Any]],
    titles: list[str],
    rank: str,
    apis: Iterable[str],
    sheets: dict[str, dict[str, dict[str, Any]]],
    used: set[str],
) -> None:
    places = {title: place for place, title in enumerate(titles)}
    for row in rows:
        name = str(row[places["NPU Name"]])
        matching = [api for api in apis if name.startswith(f"{api}.")]
        if not matching:
            continue
        used.update(matching)
        for metric, sheet in sheets.items():
            cell = row[places[metric]]
            if cell in _NO_NUMBER:
                ours, theirs = (row[places[title]] for title in _SHOWN_INSTEAD)
                cell = f"NPU:{ours}  Bench:{theirs}"
            sheet.setdefault(name, {})[rank] = cell


def _metrics_of(path: Path, titles: list[str], configuration: Configuration) -> tuple[str, ...]:
    if "NPU Name" not in titles or not set(_SHOWN_INSTEAD) <= set(titles):
        kind = "a table of checksums" if "NPU MD5" in titles else "not a table of a comparison"
        raise CommandError(f"is {kind}", file=path, remedy="merge tables of statistics or of tensors")
    every = TENSOR_COLUMNS if "Cosine" in titles else STATISTICS_COLUMNS
    for metric in configuration.metrics:
        if metric not in titles or metric not in every:
            offered = ", ".join(title for title in titles if title in every)
            raise CommandError(f"has no column {metric!r}", file=path, remedy=f"it has {offered}")
    return configuration.metrics or tuple(metric for metric in every if metric in titles)


def read_table(path: Path) -> Iterator[Sequence[Any]]:
    """Yield a table's rows, its titles first, all of one length. Raises CommandError where the file is no table."""
    if path.suffix == ".csv":
        yield from _read_csv(path)
    else:
        yield from _read_workbook(path)


def _read_csv(path: Path) -> Iterator[list[str]]:
    csv.field_size_limit(2**31 - 1)
    width = 0
    try:
        with TextIOWrapper(open_regular(path), "utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            for row in filter(None, reader):
                width = width or len(row)
                if len(row) != width:
                    raise CommandError(
                        f"line {reader.line_num} has {len(row)} cells in place of {width}",
                        file=path,
                        remedy="the table is damaged: copy or write it again",
                    )
                yield row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CommandError(f"cannot be read as a table: {error}", file=path) from None


def _read_workbook(path: Path) -> Iterator[tuple[Any, ...]]:
    try:
        import openpyxl
    except ImportError:
        raise CommandError(
            f"{path}: reading workbooks requires openpyxl: pip install 'pytest-msprobe[xlsx]', or merge CSV files"
        ) from None
    try:
        require_regular(path)
        workbook = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except Exception as error:  # openpyxl raises whatever the zip or the XML inside of it raises
        raise CommandError(f"not a workbook: {error}", file=path) from None
    width = 0
    try:
        for number, sheet in enumerate(workbook.worksheets):
            for row in sheet.iter_rows(min_row=1 if number == 0 else 2, values_only=True):
                width = width or len(row)
                # A workbook leaves out the empty cells at the end of a row.
                yield row + (None,) * (width - len(row))
    except Exception as error:  # the rows are parsed as they are asked for
        raise CommandError(f"damaged workbook: {error}", file=path) from None
    finally:
        workbook.close()


def write_merged(path: Path, merged: Merged) -> None:
    """Write a workbook with a sheet per metric. Raises OSError where the disk refuses."""
    import xlsxwriter
    from xlsxwriter.exceptions import FileCreateError

    workbook = xlsxwriter.Workbook(str(path), {"constant_memory": True, "strings_to_numbers": True})
    for metric, rows in merged.sheets.items():
        sheet = workbook.add_worksheet(metric)
        sheet.set_column(0, 0, 60)
        for place, title in enumerate(("NPU Name", *merged.ranks)):
            sheet.write_string(0, place, title)
        for line, (name, cells) in enumerate(rows.items(), start=1):
            sheet.write_string(line, 0, name)
            for place, rank in enumerate(merged.ranks, start=1):
                _write_cell(sheet, line, place, cells.get(rank))
    try:
        workbook.close()
    except FileCreateError as error:
        raise OSError(str(error)) from None


def _write_cell(sheet: Any, line: int, place: int, cell: Any) -> None:
    if cell is None:
        return
    try:
        sheet.write_number(line, place, float(cell))
    except (TypeError, ValueError):
        # Never as a formula, whatever it begins with; also inf and nan, which a spreadsheet has no number for.
        sheet.write_string(line, place, str(cell))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments; their names are msprobe's."""
    parser.add_argument(
        "-i", "--input-dir", "--input_dir", type=Path, required=True, metavar="DIR", help="folder of the tables"
    )
    parser.add_argument(
        "-o", "--output-dir", "--output_dir", type=Path, required=True, metavar="DIR", help="folder for the workbook"
    )
    parser.add_argument(
        "-config",
        "--config-path",
        type=Path,
        required=True,
        metavar="YAML",
        help="YAML file with the api and compare_index to merge",
    )


def run(arguments: argparse.Namespace) -> int:
    """Merge, print a summary, and return 0."""
    configuration = read_configuration(arguments.config_path)
    merged = merge(find_tables(arguments.input_dir), configuration)
    path = arguments.output_dir / f"multi_ranks_compare_merge_{datetime.now():%Y%m%d%H%M%S}.xlsx"
    try:
        arguments.output_dir.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as part:
            write_merged(part, merged)
    except ImportError:
        raise CommandError("workbooks need XlsxWriter", remedy="pip install 'pytest-msprobe[xlsx]'") from None
    except OSError as error:
        raise CommandError(f"cannot be written: {error.strerror or error}", file=path) from None
    for api in merged.unused:
        print(one_line(f"not in any table: {api}"))
    values = max((len(rows) for rows in merged.sheets.values()), default=0)
    print(f"{values} values of {len(merged.ranks)} ranks, {len(merged.sheets)} metrics: {path}")
    return 0
