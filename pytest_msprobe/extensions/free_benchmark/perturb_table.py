"""The free benchmark's table, ``free_benchmark.csv``, in msprobe's columns: a row for each result that changed."""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from msprobe_hooks.dump.paths import dump_at, step_rank
from msprobe_hooks.extensions.free_benchmark.recorder import FILE_NAME, HEADER, row
from pytest_msprobe.extensions.free_benchmark.perturbed import InconsistentOutput, Perturbed, perturbed_of
from pytest_msprobe.journal.journal import Journal
from pytest_msprobe.reports.csv import as_text, places
from pytest_msprobe.reports.page_file import cannot_be_written, end_as_incomplete
from pytest_msprobe.storage.atomic_write import atomic_write

_ESCAPED = "backslashreplace"


class FreeBenchmarkTables:
    """The tables below a folder, one for each dump, next to its other tables."""

    def __init__(self, folder: Path, dumps: Collection[Path]) -> None:
        self._files = {dump: folder / place / FILE_NAME for dump, place in places(dumps).items()}
        self._rows: dict[Path, list[list[Any]]] = {path: [] for path in self._files.values()}

    def add(self, dump: Path, record: str, extras: Mapping[str, Any]) -> None:
        """Keep the rows of a record of a dump."""
        perturbed = perturbed_of(extras)
        if perturbed is not None:
            self._rows[self._files[dump]] += [
                _row(dump, record, perturbed, output) for output in perturbed.inconsistent
            ]

    def close(self) -> list[Path]:
        """Write each table that has a row, and one without where an earlier run left its own; return which."""
        due = {path: rows for path, rows in self._rows.items() if rows or path.exists()}
        for path, rows in due.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as part, part.open("w", encoding="utf-8", newline="", errors=_ESCAPED) as file:
                csv.writer(file).writerows([HEADER, *rows])
        return list(due)


def _row(dump: Path, record: str, perturbed: Perturbed, output: InconsistentOutput) -> list[Any]:
    where = step_rank(dump)
    place = (where.rank, perturbed.perturbation, perturbed.stage, where.step, as_text(record))
    return row(place, output.ratio, output.dtype, output.shape, output.index, flips_sign=output.flips_sign)


def write_tables(journal: Journal, folder: Path) -> None:
    """Write the tables of a run of which there is a journal. Raises OSError."""
    tables = FreeBenchmarkTables(folder, journal.dumps)
    for entry in journal.entries.values():
        if not entry.command:
            tables.add(journal.dump_of(entry), entry.result.record, entry.result.extras)
    tables.close()


class FreeBenchmarkReport:
    """Writes the tables of a run when it ends."""

    hears_finished = True

    def __init__(self, folder: Path, dumps: Collection[Path], root: Path) -> None:
        self._folder = folder
        self._root = root
        self._dumps = frozenset(dumps)
        self._tables = FreeBenchmarkTables(folder, dumps)
        self._written: list[Path] = []
        self._problem = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what is known of one record."""
        plain = getattr(report, "msprobe", None)
        if plain is not None:
            dump = dump_at(self._root / report.nodeid.partition("::")[0], self._dumps)
            self._tables.add(dump, plain["record"], plain["extras"])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the tables; a run that loses them does not end as if it had them."""
        try:
            self._written = self._tables.close()
        except OSError as error:
            self._problem = f"{FILE_NAME}: {cannot_be_written(self._folder, error)}"
            end_as_incomplete(session)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print where the tables are, or why there are none."""
        if self._problem:
            terminalreporter.line(f"ERROR: {self._problem}", red=True)
        for path in self._written:
            terminalreporter.line(f"msprobe table: {path}")
