"""``pytest-msprobe msprobe code-mapping``: from which lines of the program the kernels of a static graph come.

Tables are msprobe's: ``code_mapping_<time>.csv`` with a row for each tensor, or, where only statistics were dumped,
copies of ``statistic.csv`` with two more columns. The dump itself stays as it is.
"""

from __future__ import annotations

import argparse
import csv
import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_msprobe.errors import CommandError
from pytest_msprobe.reports.page_file import cannot_be_written
from pytest_msprobe.reports.text import printable
from pytest_msprobe.storage.files import atomic_write

if TYPE_CHECKING:
    from msprobe_hooks.extensions.mindspore.static_graph.anf_ir import SourceLines

_TITLES = ("File Path", "Code Stack", "Scope Name")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "dump", metavar="DUMP", type=Path, help="folder of a static graph dump of MindSpore, such as rank_0"
    )
    parser.add_argument(
        "--ir", metavar="FILE", type=Path, help="text of the graph (default: graphs/*.ir of the same process)"
    )
    parser.add_argument(
        "--output", metavar="DIR", type=Path, default=Path(), help="folder for the tables (default: the current one)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the tables and say where they are. Raises CommandError or DumpError where something does not fit."""
    from msprobe_hooks.dump.recording_paths import STATISTIC_FILE, find_iterations, graph_folders

    # Names of folders are read off the path, and "." has none.
    iterations = find_iterations(os.walk(arguments.dump.resolve()))
    if not iterations:
        raise CommandError(
            "not a dump of a static graph", file=arguments.dump, remedy="pass the folder of rank_0 or of an iteration"
        )
    rows, written = list[Sequence[str]](), list[Path]()
    texts: dict[Path, SourceLines] = {}
    for iteration in iterations:
        lines = _lines_of(iteration, arguments.ir, texts)
        for folder in graph_folders(iteration):
            rows_of_folder = [*_rows(folder, lines)]
            rows += rows_of_folder
            table = folder / STATISTIC_FILE
            if table.is_file() and not rows_of_folder:
                written.append(_write(_place_of_copy(table, arguments.output), _extended(table, lines)))
    if rows:
        path = arguments.output / f"code_mapping_{datetime.now():%Y%m%d%H%M%S}.csv"
        written.append(_write(path, [_TITLES, *rows]))
    found_lines = sum(bool(row[1]) for row in rows)
    print(printable("\n".join([f"{found_lines} of {len(rows)} tensors have source lines", *map(str, written)])))
    return 0


def _lines_of(iteration: Path, ir_file: Path | None, texts: dict[Path, SourceLines]) -> SourceLines:
    """Return what is known of the kernels of a process; each text is read once."""
    from msprobe_hooks.dump.recording_paths import net_folder
    from msprobe_hooks.extensions.mindspore.static_graph.anf_ir import SourceLines, graph_texts, read_ir

    process = net_folder(iteration).parent
    key = ir_file or process
    if key not in texts:
        files = [ir_file] if ir_file is not None else graph_texts(process)
        if not files:
            raise CommandError("no graphs/*.ir found", file=process, remedy="pass the text of the graph: --ir FILE")
        nodes = [node for file in files for node in read_ir(file)]
        if not nodes:
            raise CommandError(
                "no node has a scope",
                file=files[0],
                remedy="pass a text that MindSpore wrote in this run, such as anf_after_graph_build or "
                "graphs/ms_output_trace_code_graph_0.ir",
            )
        texts[key] = SourceLines(nodes)
    return texts[key]


def _rows(folder: Path, lines: SourceLines) -> Iterator[Sequence[str]]:
    from msprobe_hooks.dump.recording_paths import net_folder
    from msprobe_hooks.extensions.mindspore.static_graph.reader import read_tensors

    for tensor in read_tensors(folder, net_folder(folder / "_")):
        if tensor.element.data_name is not None:
            yield str(net_folder(folder / "_") / tensor.element.data_name), *_lines_and_scope(lines, tensor.op)


def _place_of_copy(table: Path, output: Path) -> Path:
    """Return where the copy of a table belongs. Raises CommandError where that is the table itself."""
    copy = output / table.relative_to(table.parents[4])
    if copy.resolve() == table:
        raise CommandError(
            "would overwrite the dump's own table", file=copy, remedy="pass another folder: --output DIR"
        )
    return copy


def _extended(table: Path, lines: SourceLines) -> Iterator[Sequence[str]]:
    from msprobe_hooks.extensions.mindspore.static_graph.reader import table_rows

    titles, *rows = table_rows(table) or [[]]
    if "Op Name" not in (names := [title.strip() for title in titles]):
        raise CommandError("no column 'Op Name'", file=table, remedy="record it again")
    place = names.index("Op Name")
    yield [*titles, *_TITLES[1:]]
    for row in rows:
        # A row may end before its last columns, which are statistics.
        blanks = [""] * (len(titles) - len(row))
        yield [*row, *blanks, *_lines_and_scope(lines, row[place].replace("/", "_"))]


def _lines_and_scope(lines: SourceLines, op: str) -> tuple[str, str]:
    node = lines.of_op(op)
    return ("", "") if node is None else ("\n".join(node.lines), node.scope)


def _write(path: Path, rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as part, part.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows)
    except OSError as error:
        raise CommandError(cannot_be_written(path, error)) from None
    return path
