"""The page and the JSON of a run, written when the run ends, and errors of reports that could not be written."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.reports.report_payload import results_in
from pytest_msprobe.reports.text import one_line
from pytest_msprobe.results.result import DirectionResult, as_json, from_plain
from pytest_msprobe.storage.files import atomic_write

#: Results of items by their ids, in the order in which they ended.
Results = dict[str, DirectionResult]


def cannot_be_written(path: Path, error: OSError) -> str:
    """Return the line that says so."""
    return f"{path}: cannot be written: {error.strerror or error}"


def end_as_incomplete(session: pytest.Session) -> None:
    """End a run that found nothing wrong with another status than that."""
    if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR


class PageFile:
    """Writes a page; a run that loses it does not end as if it had it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        #: Why there is no page; empty where there is one, or nothing to write.
        self.problem = ""

    def write(self, session: pytest.Session, write: Callable[[Path], None]) -> None:
        """Write the page, whole or not at all; ``write`` makes it in a file that it is given."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(self.path) as part:
                write(part)
        except OSError as error:
            self.lose(session, cannot_be_written(self.path, error))

    def lose(self, session: pytest.Session, problem: str) -> None:
        """Note why there is no page."""
        self.problem = problem
        end_as_incomplete(session)

    def report(self, terminalreporter: pytest.TerminalReporter, left_out: str = "") -> None:
        """Print where the page is, or why there is none; ``left_out`` says why it was not to be written."""
        if self.problem:
            terminalreporter.line(one_line(f"ERROR: msprobe report: {self.problem}"), red=True)
        else:
            terminalreporter.line(one_line(f"msprobe report: {self.path}{left_out}"))


class PageReport:
    """Writes the page of a run whose items are judged from files; ``write`` makes it of all results."""

    hears_finished = True

    def __init__(self, path: Path, write: Callable[[Path, Results], None]) -> None:
        self._file = PageFile(path)
        self._write = write
        self._results: Results = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what came of one item."""
        for plain in results_in(report):
            self._results[report.nodeid] = from_plain(plain)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the page."""
        if self._results:
            self._file.write(session, lambda part: self._write(part, self._results))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print where the page is, or why there is none."""
        self._file.report(terminalreporter, "" if self._results else " not written: nothing was judged")


class JsonReport(ABC):
    """Writes a file of JSON, msprobe's or like it, for the option ``--msprobe-json``; ``title`` names it."""

    title: str

    def __init__(self, path: Path) -> None:
        self._path = path
        self._line = f"{self.title}: {path}"

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """Return what the file holds."""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the file."""
        if session.config.option.collectonly:
            return
        try:
            with atomic_write(self._path) as part:
                part.write_text(json.dumps(as_json(self.content()), indent=4), encoding="utf-8")
        except OSError as error:
            self._line = f"ERROR: --msprobe-json: {cannot_be_written(self._path, error)}"
            end_as_incomplete(session)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print where the file is."""
        if not terminalreporter.config.option.collectonly:
            terminalreporter.line(self._line)
