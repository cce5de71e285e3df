"""The page of a run whose items are judged from files: results are kept as reports arrive, the page is made of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_msprobe.reports.report_payload import results_in
from pytest_msprobe.reports.text import one_line
from pytest_msprobe.reports.write_errors import cannot_be_written, end_as_incomplete
from pytest_msprobe.results.result import DirectionResult, from_plain
from pytest_msprobe.storage.atomic_write import atomic_write

#: What came of items, by their ids, in the order in which they ended.
Results = dict[str, DirectionResult]


class PageReport:
    """Writes the page when the run ends; ``write`` makes it of all results."""

    hears_finished = True

    def __init__(self, path: Path, write: Callable[[Path, Results], None]) -> None:
        self._path = path
        self._write = write
        self._results: Results = {}
        self._problem = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what came of one item."""
        for plain in results_in(report):
            self._results[report.nodeid] = from_plain(plain)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the page; a run that loses it does not end as if it had it."""
        if not self._results:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(self._path) as part:
                self._write(part, self._results)
        except OSError as error:
            self._problem = cannot_be_written(self._path, error)
            end_as_incomplete(session)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say where the page is, or why there is none."""
        if self._problem:
            terminalreporter.line(one_line(f"ERROR: msprobe report: {self._problem}"), red=True)
        else:
            left_out = "" if self._results else " not written: nothing was judged"
            terminalreporter.line(one_line(f"msprobe report: {self._path}{left_out}"))
