"""The page of a run: rows are kept as reports arrive, and written in the end."""

from __future__ import annotations

import functools
import shlex
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from pytest_msprobe.reports.check_page import write_verdicts_page
from pytest_msprobe.reports.check_page.rows import CheckedRecord, Rows, RunFacts
from pytest_msprobe.reports.history import EarlierRuns, ItemHistories, ItemKey, brief, dump_places, read_earlier_runs
from pytest_msprobe.reports.junit import card_of_properties
from pytest_msprobe.reports.markdown import labels_key
from pytest_msprobe.reports.page_file import PageFile
from pytest_msprobe.reports.report_payload import checks_in, results_in
from pytest_msprobe.results.result import DirectionResult, Start, from_plain
from pytest_msprobe.run.collection import dump_of_id, dumps_key
from pytest_msprobe.run.options import options_key
from pytest_msprobe.run.rerun_command import display_path, rerun_command


class CheckPage:
    """Writes the page of a run when it ends."""

    hears_finished = True

    def __init__(self, config: pytest.Config, path: Path, history: Path | None = None) -> None:
        self._config = config
        self._file = PageFile(path)
        self._history = history
        self._earlier: EarlierRuns | None = None
        self._began = datetime.now().astimezone()
        self._rows = Rows()
        self._judged: list[tuple[ItemKey, DirectionResult]] = []
        self._starts: list[Start] = []
        self._rerun = functools.cache(
            lambda card: tuple(shlex.split(rerun_command(config, "<dump>", "<record>", card)))
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what is known of one record, or of a test's checks, and what they ran on."""
        started = getattr(report, "msprobe_start", None)
        if started is not None:
            self._starts.append(msgspec.convert(started, Start))
        for plain in results_in(report):
            checked = self._checked(report, from_plain(plain))
            self._rows.add(checked)
            if self._history is not None:
                self._judged.append((checked.key, brief(checked.result)))

    def _checked(self, report: pytest.TestReport, result: DirectionResult) -> CheckedRecord:
        place = card_of_properties(report.user_properties)
        if checks_in(report):
            command = getattr(report, "msprobe_command", "")
            key, rerun = ItemKey("", result.record), tuple(shlex.split(command))
            return CheckedRecord(0, result, card=place, rerun=rerun, key=key)
        dump = dump_of_id(self._config, report.nodeid)
        words = self._rerun(str(dict(report.user_properties).get("msprobe.device", "")))
        labels = self._config.stash[labels_key]
        selection = f"{display_path(self._config, dump)}::{result.record}"
        key = ItemKey(self._places[dump], result.record)
        return CheckedRecord(0, result, labels[dump], place, words, selection, key)

    @functools.cached_property
    def _places(self) -> dict[Path, str]:
        labels = self._config.stash[labels_key]
        return dump_places(labels)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the page."""
        if len(self._rows):
            self._file.write(session, self._write)

    def _write(self, part: Path) -> None:
        write_verdicts_page(part, [self._facts()], self._rows, self._histories())

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print where the page is, or why there is none."""
        self._file.report(terminalreporter, "" if len(self._rows) else " not written: nothing was judged")
        if self._earlier is not None and not self._file.problem:
            terminalreporter.line(f"msprobe history: {self._earlier}")

    def _histories(self) -> ItemHistories | None:
        """Return what earlier runs made of the rows. Raises OSError where their folder cannot be read any more."""
        if self._history is None:
            return None
        journal = self._config.stash[options_key].journal
        self._earlier = read_earlier_runs(
            self._history,
            before=self._began,
            modes={self._config.stash[options_key].mode.name},
            own=() if journal is None else (journal,),
        )
        histories = ItemHistories(self._earlier)
        for key, result in self._judged:
            histories.add(key, result)
        return histories

    def _facts(self) -> RunFacts:
        stash = self._config.stash
        options, dumps = stash[options_key], [display_path(self._config, path) for path in stash[dumps_key]]
        several = f"{len(dumps)} dumps, {dumps[0]} to {dumps[-1]}" if dumps else "tests"
        name = dumps[0] if len(dumps) == 1 else several
        settings = {"policy": options.policy, **options.mode.journal_facts(self._config).settings}
        return RunFacts(name, f"{self._began:%Y-%m-%d %H:%M}", self._starts, settings)
