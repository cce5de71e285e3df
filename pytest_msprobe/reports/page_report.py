"""The page of a run whose items are judged from files: results are kept as reports arrive, the page is made of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_msprobe.reports.page_file import PageFile
from pytest_msprobe.reports.report_payload import results_in
from pytest_msprobe.results.result import DirectionResult, from_plain

#: What came of items, by their ids, in the order in which they ended.
Results = dict[str, DirectionResult]


class PageReport:
    """Writes the page when the run ends; ``write`` makes it of all results."""

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
