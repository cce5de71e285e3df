"""A monitored run, or a pair of them, as one page: a heat map of steps and tensors, curves, findings.

Importing its modules loads msgspec, numpy, pytest and yaml.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.series.reader import Run, Series, SeriesKey
from msprobe_hooks.extensions.monitor.series.tables import Watched
from msprobe_hooks.messages import counted
from pytest_msprobe.extensions.monitor.golden.gradient_signs import Signs
from pytest_msprobe.extensions.monitor.golden.judge import GoldenJudge
from pytest_msprobe.extensions.monitor.golden.rank_pair import Compared
from pytest_msprobe.extensions.monitor.judging import SeriesJudge
from pytest_msprobe.extensions.monitor.options import PageOptions
from pytest_msprobe.extensions.monitor.page.build import (
    EQUAL,
    GREATEST,
    LEAST,
    NOT_FINITE,
    SCALE,
    Curves,
    Envelope,
    Exact,
    Finding,
    RankRuns,
    WatchedPage,
    build_page,
    widest_gap,
)
from pytest_msprobe.extensions.monitor.series_names import Alarmed, alarmed_of
from pytest_msprobe.reports.page_file import PageFile
from pytest_msprobe.reports.pages import NextStep, write_page

Outcome = Literal["warn", "fail"]
_Named = tuple[str, int, str, int, str]

#: The colours of sizes reach so many decades above and below a row's median.
_DECADES = 3


class MonitorPage:
    """Keeps what was found as reports arrive, and in the end writes the page."""

    hears_finished = True

    def __init__(
        self,
        options: PageOptions,
        judged: Sequence[tuple[Run, SeriesJudge]],
        *,
        title: str,
        standard: str,
        files: Sequence[str],
        commands: Sequence[NextStep],
    ) -> None:
        self._files = files
        self._commands = commands
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
        page = build_page(
            ranks,
            [*self._findings(failed, "fail"), *self._findings(warned, "warn")],
            title=self._title,
            about=f"{self._judged} series, {self._standard}: {len(failed)} failed, {len(warned)} warned",
            verdict=self._verdict(failed, warned),
            exact=self._options.exact,
            notes=notes,
        )
        page = replace(page, files=self._files, commands=self._commands)
        return page if page.findings or not page.is_pair else replace(page, widest=widest_gap(page, ranks))

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

    def _verdict(self, failed: Sequence[Alarmed], warned: Sequence[Alarmed]) -> str:
        if not (failed or warned):
            return f"none of {counted(self._judged, 'series', 'series')} failed"
        first = (failed or warned)[0]
        label = self._ranks[self._place(first)].label
        place = ", ".join(part for part in (label, first.item) if part)
        answer = f"{len(failed)} of {self._judged} series failed" if failed else f"none failed, {len(warned)} warned"
        return f"{answer}, first at step {first.alarms[0].step}: {place}"

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


def write_html(path: Path, page: WatchedPage) -> None:
    """Write the page. Raises OSError where the disk refuses."""
    write_page(path, __package__, _data(page), title="Monitored run", parts=("grid", "uplot", "plot", "table"))


def _data(page: WatchedPage) -> dict[str, Any]:
    tensors = {curves.key.watched: 0 for curves in page.curves}
    tensors = {tensor: place for place, tensor in enumerate(tensors)}
    first, last = SCALE
    return {
        "title": page.title,
        "about": page.about,
        "verdict": page.verdict,
        "starts": page.axis.starts.tolist(),
        "last": page.axis.last,
        "binned": page.is_binned,
        "times": None if page.times is None else page.times.tolist(),
        "pair": page.is_pair,
        "ranks": page.ranks,
        "tensors": [tensor._asdict() for tensor in tensors],
        "statistics": list(dict.fromkeys(curves.key.statistic for curves in page.curves)),
        "series": [_series(curves, tensors) for curves in page.curves],
        "findings": [_finding(finding, tensors) for finding in page.findings],
        "widest": page.widest and {"series": page.widest.curves, "step": page.widest.step, "words": page.widest.words},
        "files": page.files,
        "commands": page.commands,
        "notes": page.notes,
        "decades": _DECADES,
        "gap": {
            "equal": EQUAL,
            "scale": [first, last],
            "notFinite": NOT_FINITE,
            "least": LEAST,
            "greatest": GREATEST,
        },
    }


def _series(curves: Curves, tensors: dict[Watched, int]) -> dict[str, Any]:
    return {
        "rank": curves.rank,
        "tensor": tensors[curves.key.watched],
        "statistic": curves.key.statistic,
        "target": _both(curves.target),
        "golden": _both(curves.golden),
        "gap": None if curves.gap is None else _base64(curves.gap),
        "exact": None if curves.exact is None else _exact(curves.exact),
        "compared": None if curves.compared is None else _compared(curves.compared),
    }


def _both(envelope: Envelope | None) -> str | None:
    return None if envelope is None else _base64(np.concatenate([envelope.low, envelope.high]).astype("<f4"))


def _exact(exact: Exact) -> dict[str, list[str]]:
    sides: dict[str, Series | None] = {"target": exact.target, "golden": exact.golden}
    return {
        side: [_exact_numbers(series.steps), _exact_numbers(series.values)]
        for side, series in sides.items()
        if series is not None
    }


def _compared(compared: Compared) -> dict[str, list[str]]:
    steps = _exact_numbers(compared.steps)
    return {"gap": [steps, _exact_numbers(compared.difference)], "allowed": [steps, _exact_numbers(compared.allowed)]}


def _exact_numbers(values: NDArray[Any]) -> str:
    return _base64(values.astype("<f8"))


def _base64(values: NDArray[Any]) -> str:
    return base64.b64encode(values.tobytes()).decode()


def _finding(finding: Finding, tensors: dict[Watched, int]) -> dict[str, Any]:
    return {
        "rank": finding.rank,
        "tensor": tensors.get(finding.key.watched, -1),
        "statistic": finding.key.statistic,
        "step": finding.step,
        "outcome": finding.outcome,
        "rule": finding.rule,
        "message": finding.message,
    }
