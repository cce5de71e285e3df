"""Reporter that writes the page of monitored training when all of a run's series have been judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

import pytest

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.series.reader import Run, Series, SeriesKey
from pytest_msprobe.extensions.monitor.golden.gradient_signs import Signs
from pytest_msprobe.extensions.monitor.golden.judge import GoldenJudge
from pytest_msprobe.extensions.monitor.judging import SeriesJudge
from pytest_msprobe.extensions.monitor.page.build import Finding, RankRuns, WatchedPage, build_page
from pytest_msprobe.extensions.monitor.page.html import write_html
from pytest_msprobe.extensions.monitor.page.options import PageOptions
from pytest_msprobe.extensions.monitor.series_names import Alarmed, alarmed_of
from pytest_msprobe.reports.page_file import PageFile

Outcome = Literal["warn", "fail"]
_Named = tuple[str, int, str, int, str]


class MonitorPage:
    """Keeps what was found as reports arrive, and in the end writes the page."""

    hears_finished = True

    def __init__(
        self, options: PageOptions, judged: Sequence[tuple[Run, SeriesJudge]], *, title: str, standard: str
    ) -> None:
        self._options = options
        self._ranks = [_rank(run, judge, is_alone=len(judged) == 1) for run, judge in judged]
        self._signs = [judge.signs if isinstance(judge, GoldenJudge) else None for _, judge in judged]
        self._title = title
        self._standard = standard
        self._found: list[tuple[Outcome, Alarmed]] = []
        self._judged = 0
        assert options.path is not None
        self._file = PageFile(options.path)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what broke a rule."""
        plain = getattr(report, "msprobe", None)
        if plain is None:
            return
        self._judged += 1
        outcome, alarmed = plain["verdict"]["outcome"], alarmed_of(plain["extras"])
        if alarmed is not None and outcome in ("warn", "fail"):
            self._found.append((outcome, alarmed))

    def _page(self) -> WatchedPage:
        failed = sorted((alarmed for outcome, alarmed in self._found if outcome == "fail"), key=_by_first)
        warned = sorted((alarmed for outcome, alarmed in self._found if outcome == "warn"), key=_by_first)
        ranks, notes = _with_similarities(self._ranks, self._signs)
        return build_page(
            ranks,
            [*self._findings(failed, "fail"), *self._findings(warned, "warn")],
            title=self._title,
            about=f"{self._judged} series, {self._standard}: {len(failed)} failed, {len(warned)} warned",
            verdict=self._verdict(failed or warned),
            exact=self._options.exact,
            notes=notes,
        )

    def _findings(self, alarms_of_series: Sequence[Alarmed], outcome: Outcome) -> Iterator[Finding]:
        for alarmed in alarms_of_series:
            place = self._place(alarmed)
            key = self._keys[place].get(_named(alarmed))
            if key is not None:
                first = alarmed.alarms[0]
                yield Finding(place, key, first.step, outcome, first.rule, _message(alarmed))

    def _place(self, alarmed: Alarmed) -> int:
        """Return which of the page's ranks a series is of."""
        return next(place for place, runs in enumerate(self._ranks) if (runs.target.rank or 0) == alarmed.rank)

    @cached_property
    def _keys(self) -> list[dict[_Named, SeriesKey]]:
        """Each rank's series by what an alarm says of them."""
        return [
            {
                (key.task, key.vpp_stage, key.name, key.micro_step or 0, key.statistic): key
                for key in (*rank.keys, *(signs.keys if signs is not None else ()))
            }
            for rank, signs in zip(self._ranks, self._signs, strict=True)
        ]

    def _verdict(self, alarms_of_series: Sequence[Alarmed]) -> str:
        if not alarms_of_series:
            return "no findings"
        label = self._ranks[self._place(alarms_of_series[0])].label
        place = ", ".join(part for part in (label, alarms_of_series[0].item) if part)
        return f"first at step {alarms_of_series[0].alarms[0].step}: {place}"

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the page; what keeps it from being written is said in the summary."""
        if not self._judged:
            return
        try:
            self._file.write(session, lambda part: write_html(part, self._page()))
        except MonitorError as error:
            self._file.lose(session, f"{self._file.path}: not written: {error}")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print where the page is."""
        if self._judged:
            self._file.report(terminalreporter)


def _rank(run: Run, judge: SeriesJudge, *, is_alone: bool) -> RankRuns:
    label = "" if is_alone else run.folder.name if run.rank is None else f"rank {run.rank}"
    if isinstance(judge, GoldenJudge):
        return RankRuns(label, judge.series_keys, run, judge.golden, judge.compared)
    return RankRuns(label, judge.keys, run)


def _with_similarities(ranks: Sequence[RankRuns], of_ranks: Sequence[Signs | None]) -> tuple[list[RankRuns], list[str]]:
    """Return the ranks with the sign similarities that they have, and notes on those that are unknown."""
    probed, notes = [], []
    for rank, signs in zip(ranks, of_ranks, strict=True):
        similarities: list[Series] = []
        if signs is not None:
            try:
                similarities = [signs.series(key) for key in signs.keys]
            except MonitorError as error:
                notes.append(f"sign similarities left out: {error}")
        probed.append(replace(rank, similarities=similarities))
    return probed, notes


def _by_first(alarmed: Alarmed) -> tuple[Any, ...]:
    return alarmed.first


def _named(alarmed: Alarmed) -> _Named:
    return alarmed.task, alarmed.vpp_stage, alarmed.name, alarmed.micro_step, alarmed.statistic


def _message(alarmed: Alarmed) -> str:
    first, others = alarmed.alarms[0], len(alarmed.alarms) - 1
    more = f"; {others} more, the last at step {alarmed.alarms[-1].step}" if others else ""
    return f"{alarmed.statistic} {first.reason}{more}"
