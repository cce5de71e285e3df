"""Series as items, and the report on a monitored run: where it went wrong first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from heapq import nsmallest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.messages import id_name, numbered
from pytest_msprobe.extensions.monitor.options import monitor_key
from pytest_msprobe.extensions.monitor.replicas import Replicas
from pytest_msprobe.extensions.monitor.series_names import (
    ONE_STEP,
    Alarmed,
    Place,
    alarmed_of,
    item_name,
    write_anomalies,
)
from pytest_msprobe.reports.page_file import cannot_be_written, end_as_incomplete
from pytest_msprobe.reports.text import one_line
from pytest_msprobe.results.outcomes import Breakdown
from pytest_msprobe.results.result import DirectionResult, failed_without_result
from pytest_msprobe.run.item import JudgedItem

if TYPE_CHECKING:
    import pytest

    from msprobe_hooks.extensions.monitor.series.reader import SeriesKey
    from pytest_msprobe.extensions.monitor.judging import SeriesJudge


class SeriesItem(JudgedItem):
    """One series of one rank: a tensor's statistic over the steps."""

    announces_warnings = False
    # Nothing here runs on a device, and numbers are read a few tensors at a time.
    is_isolated = False

    def __init__(self, *, key: SeriesKey, judge: SeriesJudge, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.key = key
        self._judge = judge

    def judge(self) -> DirectionResult:
        """Judge the series."""
        try:
            return replace(self._judge.judge(self.key), record=self.name)
        except MonitorError as error:
            return failed_without_result(self.name, Breakdown.RECORD, str(error))

    def mark_names(self) -> list[str]:
        """Return the task and the statistic."""
        return [self.key.task, self.key.statistic]

    def may_be_marked(self, name: str) -> bool:
        """Return whether it is the series' task or statistic."""
        return name in (self.key.task, self.key.statistic)


def series_items(file: pytest.File, judge: SeriesJudge) -> Iterator[SeriesItem]:
    """Yield an item for each series, in the order computed."""
    keys = list(judge.keys)
    for key, name in zip(keys, numbered(id_name(item_name(key)) for key in keys), strict=True):
        yield SeriesItem.from_parent(file, name=name, key=key, judge=judge)


def mark_lines(judges: Iterable[SeriesJudge]) -> dict[str, str]:
    """Return the marks that the items carry, each with its meaning."""
    keys = [key for judge in judges for key in judge.keys]
    return {key.statistic: "the statistic of a series" for key in keys} | {
        key.task: "the task of a series" for key in keys
    }


_OTHERS_SHOWN = 5
# Of thousands of series that fail after the first, a terminal lists so many failures; all with -v.
_FAILURES_LISTED = 20
_NOTES_SHOWN = 5


class MonitorReport:
    """Collects alarms as reports arrive; in the end the first step leads, in it the first tensor computed."""

    #: What a resumed journal had finished may have gone wrong earlier.
    hears_finished = True

    def __init__(
        self, config: pytest.Config, ranks: Sequence[int], notes: Sequence[str], replicas: Replicas | None = None
    ) -> None:
        self._replicas = replicas
        self._options = config.stash[monitor_key]
        self._is_verbose = config.get_verbosity() > 0
        self._ranks = ranks
        self._notes = notes
        self._failed: list[Alarmed] = []
        self._by_test: dict[str, Alarmed] = {}
        self._warned: list[Alarmed] = []
        self._judged = 0
        self._of_one_step = 0
        self._written: list[Path] = []
        self._problem = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what broke a rule."""
        plain = getattr(report, "msprobe", None)
        if plain is not None:
            self._judged += 1
            self._of_one_step += ONE_STEP in plain["extras"]
        outcome = "" if plain is None else plain["verdict"]["outcome"]
        if plain is not None and outcome in ("fail", "warn"):
            alarmed = alarmed_of(plain["extras"])
            if alarmed is not None:
                (self._failed if outcome == "fail" else self._warned).append(alarmed)
                self._by_test[report.nodeid] = alarmed

    def is_listed(self, report: pytest.TestReport) -> bool:
        """Return whether a failed test's series is among the first that went wrong, or has no verdict."""
        alarmed = self._by_test.get(report.nodeid)
        return alarmed is None or alarmed.first <= self._last_listed

    @cached_property
    def _last_listed(self) -> tuple[int, Place, int]:
        return nsmallest(_FAILURES_LISTED, (alarmed.first for alarmed in self._failed))[-1]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write msprobe's files, if they are wanted."""
        folder = self._options.json
        if folder is not None and not session.config.option.collectonly:
            try:
                self._written = write_anomalies(folder, self._ranks, self._failed)
            except OSError as error:
                self._problem = f"--msprobe-json: {cannot_be_written(folder, error)}"
                end_as_incomplete(session)

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the section."""
        if terminalreporter.config.option.collectonly:
            return
        terminalreporter.section("msprobe monitor")
        for line in self.lines():
            terminalreporter.line(one_line(line))
        if self._problem:
            terminalreporter.line(one_line(f"ERROR: {self._problem}"), red=True)

    def lines(self) -> Iterator[str]:
        """Yield the section's lines."""
        series = sorted(self._failed, key=lambda alarmed: alarmed.first)
        if series:
            yield from self._findings(series)
        elif not self._judged:
            yield "no series was judged"
        else:
            yield "no series left the tolerance" if self._options.golden else "no series broke a rule"
        yield from self._warnings()
        if self._of_one_step:
            yield (
                f"{self._of_one_step} of {self._judged} series have one step: "
                "rules on changes from step to step judged nothing of them"
            )
        if self._judged and self._replicas is not None:
            yield from self._replicas.notes()
        yield from self._notes[:_NOTES_SHOWN]
        if len(self._notes) > _NOTES_SHOWN:
            yield f"and {len(self._notes) - _NOTES_SHOWN} more notes on the files; the header lists all"
        for path in self._written if series else ():
            yield f"all alarms are in {path}"

    def _findings(self, series: Sequence[Alarmed]) -> Iterator[str]:
        first, *others = series
        yield f"first at step {first.alarms[0].step}: {self._named(first)}"
        yield f"  {first.alarms[0].rule}: {first.statistic} {first.alarms[0].reason}"
        for other in others[:_OTHERS_SHOWN]:
            yield f"then at step {other.alarms[0].step}: {self._named(other)}, {other.alarms[0].rule}"
        if len(others) > _OTHERS_SHOWN:
            all_listed = self._is_verbose or len(series) <= _FAILURES_LISTED
            yield f"and {len(others) - _OTHERS_SHOWN} more series{'' if all_listed else ' (-v lists all failures)'}"

    def _warnings(self) -> Iterator[str]:
        """Yield a line for each rule that warns: the first series, and how many more there are."""
        by_rule: dict[str, list[Alarmed]] = {}
        for alarmed in sorted(self._warned, key=lambda alarmed: alarmed.first):
            by_rule.setdefault(alarmed.alarms[0].rule, []).append(alarmed)
        for rule, (first, *others) in by_rule.items():
            more = f" (and {len(others)} more series)" if others else ""
            yield f"warned at step {first.alarms[0].step}: {self._named(first)}{more}"
            yield f"  {rule}: {first.statistic} {first.alarms[0].reason}"

    def _named(self, alarmed: Alarmed) -> str:
        rank = f"rank {alarmed.rank}, " if len(self._ranks) > 1 else ""
        return f"{rank}{alarmed.item}"
