"""Deviations of perturbed calls, as the extras of results, in the summary and in msprobe's table."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from msprobe_hooks.dump.recording_paths import dump_at, step_rank
from msprobe_hooks.extensions.free_benchmark.table import FILE_NAME, HEADER, row
from pytest_msprobe.journal import Journal
from pytest_msprobe.reports.csv import as_text, places
from pytest_msprobe.reports.page_file import cannot_be_written, end_as_incomplete
from pytest_msprobe.results.result import DirectionResult, decode_extra
from pytest_msprobe.storage.files import atomic_write

_PERTURBED = "perturbed"

# How many of the APIs that changed too much are listed.
_SHOWN = 5

_ESCAPED = "backslashreplace"


class InconsistentOutput(msgspec.Struct, frozen=True):
    """An output that changed by more than it should; ``index`` is its place among several.

    ``ratio`` of its two values is over ``threshold``; both are None where no ratio judges, or where a sign flipped.
    """

    index: int | None
    dtype: str
    shape: tuple[int, ...]
    ratio: float | None = None
    threshold: float | None = None
    flips_sign: bool = False

    def __str__(self) -> str:
        place = "the result" if self.index is None else f"result {self.index}"
        if self.flips_sign:
            return f"{place} changes its sign"
        if self.ratio is None:
            return f"{place} changes by more than its dtype's precision"
        return f"{place} changes by a ratio of {self.ratio:.7g}, where {self.threshold:.7g} is allowed"


class Perturbed(msgspec.Struct, frozen=True):
    """A call of ``api``, perturbed at a ``stage``, forward or backward: the largest ratio, and what changed too much.

    ``again`` says what else further runs came to, where the perturbation is not the cause. ``left_out`` is why it was
    not perturbed.
    """

    api: str
    perturbation: str
    stage: str
    ratio: float | None = None
    inconsistent: tuple[InconsistentOutput, ...] = ()
    left_out: str = ""
    again: str = ""

    def __str__(self) -> str:
        again = [self.again] if self.again else []
        return f"perturbed by {self.perturbation}, {'; '.join([*map(str, self.inconsistent), *again])}"


def with_perturbed(result: DirectionResult, perturbed: Perturbed) -> DirectionResult:
    """Return a result with what came of perturbed inputs."""
    result = result.with_extra(_PERTURBED, msgspec.to_builtins(perturbed))
    return result.with_property(_PERTURBED, str(perturbed)) if perturbed.inconsistent else result


def _perturbed_of(extras: Mapping[str, Any]) -> Perturbed | None:
    """Return what the extras of a result say of perturbed inputs."""
    return decode_extra(extras, _PERTURBED, Perturbed)


class PerturbedTally:
    """Counts, for the summary, what was perturbed, which APIs changed too much, and why others were not perturbed."""

    def __init__(self) -> None:
        self._perturbation = ""
        self._perturbed = 0
        self._inconsistent: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()

    def add(self, extras: Mapping[str, Any]) -> None:
        """Count one record."""
        perturbed = _perturbed_of(extras)
        if perturbed is None:
            return
        self._perturbation = perturbed.perturbation
        if perturbed.left_out:
            self._left_out[perturbed.left_out] += 1
            return
        self._perturbed += 1
        self._inconsistent.update([perturbed.api] if perturbed.inconsistent else [])

    def lines(self) -> list[str]:
        """Return the summary's lines."""
        if not self._perturbation:
            return []
        changed = self._inconsistent.total()
        lines = [f"{self._perturbed} perturbed by {self._perturbation}, {changed} of them changed too much"]
        lines += [f"  {count} {api}" for api, count in self._inconsistent.most_common(_SHOWN)]
        hidden = len(self._inconsistent) - _SHOWN
        lines += [f"  and {hidden} more"] if hidden > 0 else []
        return lines + [f"  {count} not perturbed: {reason}" for reason, count in self._left_out.most_common()]


class FreeBenchmarkTables:
    """The tables below a folder, one for each dump, next to its other tables."""

    def __init__(self, folder: Path, dumps: Collection[Path]) -> None:
        self._files = {dump: folder / place / FILE_NAME for dump, place in places(dumps).items()}
        self._rows: dict[Path, list[list[Any]]] = {path: [] for path in self._files.values()}

    def add(self, dump: Path, record: str, extras: Mapping[str, Any]) -> None:
        """Keep the rows of a record of a dump."""
        perturbed = _perturbed_of(extras)
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
