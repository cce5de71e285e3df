"""The file of a run's page, written when the run ends, and errors of reports that could not be written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_msprobe.reports.text import one_line
from pytest_msprobe.storage.atomic_write import atomic_write


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
