"""Running a call with perturbed inputs, as a step after the verdict."""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from msprobe_hooks.dump.paths.recording import step_rank
from msprobe_hooks.instruments.free_benchmark.config import PERTURBATIONS
from msprobe_hooks.instruments.free_benchmark.table import FILE_NAME, HEADER, row
from pytest_msprobe.engine.replay.calls.subject import TargetError
from pytest_msprobe.engine.replay.reruns.determinism import why_unrepeatable
from pytest_msprobe.engine.replay.reruns.perturbation import perturbed_call
from pytest_msprobe.engine.values.suppress_warnings import unwarned
from pytest_msprobe.errors import OptionError
from pytest_msprobe.modes.check.follow_up import Judged, can_run_again
from pytest_msprobe.reports.csv import as_text, places
from pytest_msprobe.reports.write_errors import cannot_be_written, end_as_incomplete
from pytest_msprobe.results.perturbed import InconsistentOutput, Perturbed, perturbed_of, with_perturbed
from pytest_msprobe.results.result import DirectionResult
from pytest_msprobe.results.skip_reasons import Skip
from pytest_msprobe.storage.atomic_write import whole_file


class Perturb:
    """Perturbs each call by the perturbation of that name.

    A result that changes too much is a warning and no failure: a right kernel does the same where the call is
    ill-conditioned. So is msprobe's handler ``check``, which reports and goes on with the original result.
    """

    def __init__(self, perturbation: str) -> None:
        self._perturbation = perturbation

    def __call__(self, judged: Judged) -> DirectionResult:
        """Perturb a call that runs on the device."""
        if not can_run_again(judged.result):
            return judged.result
        replay = judged.replay
        left_out = why_unrepeatable(replay.trial, replay.setup.framework.name)
        if left_out:
            api = replay.call.name.qualified_api
            return with_perturbed(
                judged.result, Perturbed(api, self._perturbation, judged.direction, left_out=left_out)
            )
        # That an API is deprecated is no concern of this check, nor may it end one where warnings are errors.
        with unwarned():
            try:
                perturbed = perturbed_call(replay.trial, judged.direction, self._perturbation)
            except (Skip, TargetError):
                # What golden could not judge does not run here either.
                return judged.result
        return _told(judged.result, perturbed)


def _told(result: DirectionResult, perturbed: Perturbed) -> DirectionResult:
    outcome = result.verdict.outcome
    if not perturbed.inconsistent:
        return with_perturbed(result, perturbed)
    if outcome == "fail":
        told = with_perturbed(result, perturbed)
        return replace(told, notes=(*told.notes, f"It is sensitive as well: {perturbed}"))
    told = with_perturbed(result, msgspec.structs.replace(perturbed, accuracy=outcome))
    # Standard, metrics and margin stay those of the accuracy.
    reason = "; ".join(filter(None, (result.verdict.reason, str(perturbed))))
    return replace(told, verdict=replace(result.verdict, outcome="warn", reason=reason), skip=None)


def add_options(group: pytest.OptionGroup) -> None:
    """Add the option to the group."""
    group.addoption(
        "--msprobe-perturb",
        metavar="NAME",
        help="run each call once more with perturbed inputs, and warn where its result changes by more than msprobe's "
        f"free benchmark allows: {', '.join(PERTURBATIONS)} (default: not at all)",
    )


def read_perturb(config: pytest.Config) -> str | None:
    """Return the perturbation's name, None where nothing is perturbed. Raises OptionError."""
    name: Any = config.getoption("msprobe_perturb")
    if name is not None and name not in PERTURBATIONS:
        raise OptionError(f"--msprobe-perturb {name!r}: allowed are {', '.join(PERTURBATIONS)}")
    return None if name is None else str(name)


_ESCAPED = "backslashreplace"


class FreeBenchmarkTables:
    """The tables below a folder, one for each dump, beside its other tables."""

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
            with whole_file(path) as part, part.open("w", encoding="utf-8", newline="", errors=_ESCAPED) as file:
                csv.writer(file).writerows([HEADER, *rows])
        return list(due)


def _row(dump: Path, record: str, perturbed: Perturbed, output: InconsistentOutput) -> list[Any]:
    where = step_rank(dump)
    place = (where.rank, perturbed.perturbation, perturbed.stage, where.step, as_text(record))
    return row(place, output.ratio, output.dtype, output.shape, output.index, flips_sign=output.flips_sign)


class FreeBenchmarkReport:
    """Writes the tables of a run when it ends."""

    hears_finished = True

    def __init__(self, folder: Path, dumps: Collection[Path], root: Path) -> None:
        self._folder = folder
        self._root = root
        self._tables = FreeBenchmarkTables(folder, dumps)
        self._written: list[Path] = []
        self._problem = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what is known of one record."""
        plain = getattr(report, "msprobe", None)
        if plain is not None:
            self._tables.add(self._root / report.nodeid.partition("::")[0], plain["record"], plain["extras"])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the tables; a run that loses them does not end as if it had them."""
        try:
            self._written = self._tables.close()
        except OSError as error:
            self._problem = f"{FILE_NAME}: {cannot_be_written(self._folder, error)}"
            end_as_incomplete(session)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say where the tables are, or why there are none."""
        if self._problem:
            terminalreporter.line(f"ERROR: {self._problem}", red=True)
        for path in self._written:
            terminalreporter.line(f"msprobe table: {path}")
