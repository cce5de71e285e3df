"""The report on two environments: which facts differ, errors first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pytest_msprobe.extensions.environment.facts import SECTIONS
from pytest_msprobe.extensions.environment.workbook import FILE, Ranked, write_result
from pytest_msprobe.reports.text import one_line
from pytest_msprobe.reports.write_errors import cannot_be_written, end_as_incomplete
from pytest_msprobe.run.shared_options import XLSX

_SHOWN = 10


class EnvironmentReport:
    """Collects what differs as reports arrive, and writes msprobe's workbook where it is wanted."""

    #: What a resumed journal had finished may have differed earlier.
    hears_finished = True

    def __init__(self, pairs: Sequence[Ranked], folder: Path | None) -> None:
        self._pairs = pairs
        self._folder = folder
        self._differing: dict[str, dict[str, str]] = {"fail": {}, "warn": {}}
        self._has_judged = False
        self._written: Path | None = None
        self._problem = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what differs."""
        plain = getattr(report, "msprobe", None)
        if plain is not None:
            self._has_judged = True
            verdict = plain["verdict"]
            if verdict["outcome"] in self._differing:
                self._differing[verdict["outcome"]][plain["record"]] = verdict["reason"].partition("\n")[0]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the workbook."""
        if self._folder is None or session.config.option.collectonly:
            return
        path = self._folder / FILE
        try:
            write_result(path, self._pairs)
            self._written = path
        except OSError as error:
            self._problem = f"{XLSX}: {cannot_be_written(path, error)}"
            end_as_incomplete(session)

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the section."""
        if terminalreporter.config.option.collectonly:
            return
        terminalreporter.section("msprobe environment")
        for line in self.lines():
            terminalreporter.line(one_line(line))
        if self._problem:
            terminalreporter.line(one_line(f"ERROR: {self._problem}"), red=True)

    def lines(self) -> Iterator[str]:
        """Yield the section's lines."""
        if not self._has_judged:
            yield "no fact was judged"
        elif not any(self._differing.values()):
            yield "the two environments are equal"
        for outcome, level in (("fail", "error"), ("warn", "warning")):
            differing = sorted(self._differing[outcome].items(), key=_order)
            yield from (f"{level}: {name}: {reason}" for name, reason in differing[:_SHOWN])
            if len(differing) > _SHOWN:
                yield f"and {len(differing) - _SHOWN} more of level {level}"
        if self._written is not None:
            yield f"all facts are in {self._written}"


def _order(differing: tuple[str, str]) -> int:
    """Sort by section, which is what may explain what comes after it; else as collected."""
    return next((place for place, section in enumerate(SECTIONS) if f"{section}/" in differing[0]), len(SECTIONS))
