"""Of each API the worst margin in each of several runs, and what got worse."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from pytest_msprobe.extensions.trend.series import SeriesTrend, ranks_of_series, series_trends
from pytest_msprobe.journal.shards import WholeRun
from pytest_msprobe.reports.worst_margins import Worst, is_worse, worst_by_api

Change = Literal["worse", "better", "new", "gone", ""]

# Where a monitored run lies and what its files are is no setting, though a resumed run must have the same.
_FILES = "files "


@dataclass(frozen=True, slots=True)
class Run:
    """A run as one point in time: when it began, what it ran on, its settings and its journals."""

    name: str
    began: datetime
    device: str
    settings: Mapping[str, str]
    paths: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class ApiTrend:
    """One direction of an API, or another record by its name: its worst in each run, None where none was judged."""

    name: str
    worst: tuple[Worst | None, ...]

    @property
    def last(self) -> Worst | None:
        """What it is in the last run."""
        return self.worst[-1]

    @property
    def reference(self) -> int | None:
        """The run that the last one is compared with: the latest before that judged the API, None where none did.

        Where it is as in that run, it is the first: what creeps moves little from one run to the next.
        """
        earlier = [place for place, worst in enumerate(self.worst[:-1]) if worst is not None]
        if not earlier:
            return None
        return next((place for place in (earlier[-1], earlier[0]) if self._change_since(place)), earlier[-1])

    @property
    def change(self) -> Change:
        """What became of it in the last run; empty where it is as before."""
        return "new" if self.reference is None else self._change_since(self.reference)

    @property
    def factor(self) -> float:
        """How many times its margin is that of the run that it is compared with; NaN where there is none."""
        before = None if self.reference is None else self.worst[self.reference]
        if before is None or self.last is None:
            return math.nan
        if self.last.margin == before.margin:
            return 1.0
        return self.last.margin / before.margin if before.margin else math.inf

    def _change_since(self, place: int) -> Change:
        before, last = self.worst[place], self.last
        if last is None:
            return "gone" if self.worst[-2] is not None else ""
        if before is None or is_worse(last, before):
            return "worse"
        return "better" if is_worse(before, last) else ""


@dataclass(frozen=True, slots=True)
class Trend:
    """Runs by date, and every API that one of them judged: those that got worse first, by what they are now.

    ``series`` are those of monitored training that are shown, the ones that moved most first; ``has_several_ranks``
    whether the runs have series of several ranks, shown or not.
    """

    runs: tuple[Run, ...]
    apis: tuple[ApiTrend, ...]
    series: tuple[SeriesTrend, ...] = ()
    has_several_ranks: bool = False

    @property
    def of(self) -> str:
        """What the journals are of, in a word: those of monitored training and of modules have no APIs."""
        return "APIs" if any(" " in api.name for api in self.apis) else "items"

    def changed(self, change: Change) -> list[ApiTrend]:
        """Return the APIs that changed so."""
        return [api for api in self.apis if api.change == change]

    def differing_settings(self) -> dict[str, tuple[str, ...]]:
        """Return what the runs were not set to alike, by run: margins move by it, too."""
        names = dict.fromkeys(name for run in self.runs for name in run.settings if not name.startswith(_FILES))
        values = {name: tuple(run.settings.get(name, "(default)") for run in self.runs) for name in names}
        return {name: each for name, each in values.items() if len(set(each)) > 1}


def make_trend(runs: Sequence[WholeRun], patterns: Sequence[str] = ()) -> Trend:
    """Return the trend of runs, which are in the order of their dates; ``patterns`` name the series to show."""
    found = [worst_by_api(entry.result for entry in run.journal.entries.values()) for run in runs]
    names = dict.fromkeys(name for worst in found for name in worst)
    apis = [ApiTrend(name, tuple(worst.get(name) for worst in found)) for name in names]
    journals = [run.journal for run in runs]
    series = series_trends(journals, patterns)
    has_several_ranks = len(ranks_of_series(journals)) > 1
    return Trend(tuple(map(_run, runs)), tuple(sorted(apis, key=_by_change)), tuple(series), has_several_ranks)


def _run(whole: WholeRun) -> Run:
    devices = dict.fromkeys(start.description for start in whole.journal.starts)
    return Run(whole.name, whole.began, next(iter(devices), ""), whole.journal.header.settings, whole.paths)


def _by_change(api: ApiTrend) -> tuple[int, int, float, str]:
    order: Sequence[Change] = ("worse", "new", "better", "gone", "")
    last = api.last
    # A factor says little where the margins are small: 0.01 after 0 is not above 0.9 after 0.3.
    margin = 0.0 if last is None or math.isnan(last.margin) else last.margin
    return order.index(api.change), -(last.severity if last else 0), -margin, api.name
