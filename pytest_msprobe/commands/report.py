"""``pytest-msprobe report``: a journal as Markdown, JUnit and msprobe's tables."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from pytest_msprobe.errors import CommandError
from pytest_msprobe.journal.file import Journal, read_journal
from pytest_msprobe.modes.check.perturb.table import FreeBenchmarkTables
from pytest_msprobe.reports.csv import TablesByDump
from pytest_msprobe.reports.markdown import markdown
from pytest_msprobe.storage.whole import whole_file

_STANDARD_OUTPUT = "-"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the journal and the reports that can be made of it."""
    parser.add_argument("journal", metavar="JOURNAL", type=Path, help="a file that pytest --msprobe-journal wrote")
    parser.add_argument("--junit", metavar="FILE", type=Path, help="write JUnit XML")
    parser.add_argument("--markdown", metavar="FILE", help="write Markdown for an issue; - is the screen, the default")
    parser.add_argument(
        "--csv",
        metavar="DIR",
        type=Path,
        help="write msprobe's CSV files: two of accuracy_checking, and free_benchmark.csv",
    )


def run(arguments: argparse.Namespace) -> int:
    """Make the reports. Raises CommandError where the journal cannot be read or a file cannot be written."""
    journal = read_journal(arguments.journal)
    text: str | None = arguments.markdown
    if arguments.junit:
        _write_junit(journal, arguments.junit)
    if arguments.csv:
        _write_tables(journal, arguments.csv)
    if text not in (None, _STANDARD_OUTPUT):
        with _written(Path(text)) as part:
            part.write_text(markdown(journal), encoding="utf-8")
    if text == _STANDARD_OUTPUT or not (arguments.junit or arguments.csv or text):
        sys.stdout.buffer.write(markdown(journal).encode(sys.stdout.encoding, errors="backslashreplace"))
    return 0


def _write_junit(journal: Journal, path: Path) -> None:
    try:
        from pytest_msprobe.reports.junit import write_junit
    except ImportError:
        raise CommandError("--junit needs junitparser; install it with: pip install 'pytest-msprobe[junit]'") from None
    with _written(path) as part:
        write_junit(journal, part)


def _write_tables(journal: Journal, folder: Path) -> None:
    dumps = {entry.id: journal.dump_of(entry) for entry in journal.entries.values()}
    tables, moved = TablesByDump(folder, set(dumps.values())), FreeBenchmarkTables(folder, set(dumps.values()))
    try:
        for entry in journal.entries.values():
            tables.add(dumps[entry.id], entry.result)
            moved.add(dumps[entry.id], entry.result.record, entry.result.extras)
        tables.close()
        moved.close()
    except OSError as error:
        tables.discard()
        raise CommandError(f"cannot be written: {error.strerror}", file=folder) from None


@contextlib.contextmanager
def _written(path: Path) -> Iterator[Path]:
    try:
        with whole_file(path) as part:
            yield part
    except OSError as error:
        raise CommandError(f"cannot be written: {error.strerror}", file=path) from None
