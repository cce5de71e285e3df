"""A failure's text as pytest shows it: one line where it wants one, coloured on a terminal."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_msprobe.reports.github import RERUN

_VERDICT = re.compile(r"(?P<before>.*: )(?P<outcome>fail|warn|pass)(?P<after> by .*)")
_COLOURS = {"fail": "red", "warn": "yellow", "pass": "green"}


@dataclass(frozen=True)
class Crash:
    """Single line that ``--tb=line``, the short summary and JUnit's message show."""

    path: str
    message: str
    lineno: int = 0

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class ShownFailure:
    """Text that pytest prints of a failed item; its string is the text itself."""

    def __init__(self, nodeid: str, text: str, *, is_line: bool = False) -> None:
        self._text = text
        self._is_line = is_line
        self.reprcrash = Crash(nodeid, text.partition("\n")[0])

    def __str__(self) -> str:
        return self._text

    def toterminal(self, tw: Any) -> None:
        """Write the text: the reason, the headline, each verdict and the command stand out."""
        if self._is_line:
            # pytest writes the line itself, after what the failure has to say.
            return
        is_headline_next = False
        for number, line in enumerate(self._text.split("\n")):
            verdict = _VERDICT.fullmatch(line)
            if number == 0:
                tw.line(line, red=True, bold=True)
            elif verdict is not None:
                outcome = verdict["outcome"]
                coloured = tw.markup(outcome, bold=True, **{_COLOURS[outcome]: True})
                tw.line(f"{verdict['before']}{coloured}{verdict['after']}")
            elif line.startswith(RERUN):
                tw.line(tw.markup(RERUN, bold=True) + tw.markup(line.removeprefix(RERUN), cyan=True))
            else:
                tw.line(line, bold=is_headline_next)
            is_headline_next = number == 1 and not line


class ShowsFailures:
    """Has pytest show the failures of records, which cross processes as text; by ``--tb=line`` a line of each."""

    def __init__(self, config: pytest.Config) -> None:
        self._is_line = config.getoption("tbstyle", "auto") == "line"

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: Any) -> None:
        """Replace the text by what is shown."""
        if report.outcome == "failed" and isinstance(report.longrepr, str) and hasattr(report, "msprobe"):
            report.longrepr = ShownFailure(report.nodeid, report.longrepr, is_line=self._is_line)
