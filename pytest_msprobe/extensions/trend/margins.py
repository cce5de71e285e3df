"""Trend of the worst margins of each API, and of watched series, over several runs, as data and text."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal

from pytest_msprobe.journal import Journal
from pytest_msprobe.journal.shards import WholeRun
from pytest_msprobe.reports.text import aligned, clipped, printable
from pytest_msprobe.reports.worst_margins import Worst, is_worse, worst_by_api
from pytest_msprobe.results.result import Spread, spread_of

#: How many of the series that moved most are shown where none are named.
MOST_MOVED: Final = 12
# Of others, as of a mean near 0, relative differences mean little.
_MAGNITUDES = ("norm", "rms")


@dataclass(frozen=True, slots=True)
class SeriesTrend:
    """One series of a rank, ``item`` by the name of its item: its values in each run, None where it was not judged."""

    item: str
    rank: int
    spreads: tuple[Spread | None, ...]

    def name(self, has_several_ranks: bool) -> str:
        """Return what the series is called, among those of several ranks or of one."""
        return f"rank {self.rank}, {self.item}" if has_several_ranks else self.item

    @property
    def moved(self) -> float:
        """Return how far the medians of the runs are apart, relative to the largest; 0 to 2."""
        medians = [spread.median for spread in self.spreads if spread is not None]
        largest = max(map(abs, medians), default=0.0)
        return (max(medians) - min(medians)) / largest if largest else 0.0


def ranks_of_series(journals: Sequence[Journal]) -> set[int]:
    """Return the ranks that series of any run are of."""
    results = (entry.result for journal in journals for entry in journal.entries.values())
    return {spread.rank for result in results if (spread := spread_of(result.extras)) is not None}


def series_trends(journals: Sequence[Journal], patterns: Sequence[str] = ()) -> list[SeriesTrend]:
    """Return the series of runs in the order of their dates, those that moved most first.

    They are those whose name fits a pattern such as ``grad_reduced/layers.0.*``, or without patterns the `MOST_MOVED`
    magnitudes that moved at all; of several that are alike the first.
    """
    spreads_of_runs: list[dict[tuple[str, int], Spread]] = []
    for journal in journals:
        results = (entry.result for entry in journal.entries.values())
        spreads = ((result.record, spread_of(result.extras)) for result in results)
        spreads_of_runs.append({(item, spread.rank): spread for item, spread in spreads if spread is not None})
    keys = dict.fromkeys(key for spreads_of_run in spreads_of_runs for key in spreads_of_run)
    trends = [SeriesTrend(*key, tuple(of_run.get(key) for of_run in spreads_of_runs)) for key in keys]
    trends.sort(key=lambda trend: -trend.moved)
    if patterns:
        return [trend for trend in trends if any(fnmatchcase(trend.item, pattern) for pattern in patterns)]
    # Where nothing is reduced or clipped a gradient is the same before and after.
    distinct: dict[tuple[Spread | None, ...], SeriesTrend] = {}
    for trend in trends:
        if trend.moved and trend.item.rpartition("/")[2] in _MAGNITUDES:
            distinct.setdefault(trend.spreads, trend)
    return list(distinct.values())[:MOST_MOVED]


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
        """Return what it is in the last run."""
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
        """Return what became of it in the last run; empty where it is as before."""
        return "new" if self.reference is None else self._change_since(self.reference)

    @property
    def factor(self) -> float:
        """Return how many times its margin is that of the run that it is compared with; NaN where there is none."""
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
    whether the runs have series of several ranks, shown or not. ``again`` has by API the words of the command that runs
    the worst record of the last run again.
    """

    runs: tuple[Run, ...]
    apis: tuple[ApiTrend, ...]
    series: tuple[SeriesTrend, ...] = ()
    has_several_ranks: bool = False
    again: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def of(self) -> str:
        """Return what the journals are of, in a word: those of monitored training and of modules have no APIs."""
        return "APIs" if any(" " in api.name for api in self.apis) else "items"

    def changed(self, change: Change) -> list[ApiTrend]:
        """Return the APIs that changed so."""
        return [api for api in self.apis if api.change == change]

    def differing_settings(self) -> dict[str, tuple[str, ...]]:
        """Return what the runs were not set to alike, by run: margins move by it, too."""
        names = dict.fromkeys(name for run in self.runs for name in run.settings if not name.startswith(_FILES))
        values = {name: tuple(run.settings.get(name, "(default)") for run in self.runs) for name in names}
        return {name: by_run for name, by_run in values.items() if len(set(by_run)) > 1}


def make_trend(runs: Sequence[WholeRun], patterns: Sequence[str] = ()) -> Trend:
    """Return the trend of runs, which are in the order of their dates; ``patterns`` name the series to show."""
    worst_of_runs = [worst_by_api(entry.result for entry in run.journal.entries.values()) for run in runs]
    names = dict.fromkeys(name for worst in worst_of_runs for name in worst)
    apis = [ApiTrend(name, tuple(worst.get(name) for worst in worst_of_runs)) for name in names]
    journals = [run.journal for run in runs]
    series = series_trends(journals, patterns)
    has_several_ranks = len(ranks_of_series(journals)) > 1
    return Trend(
        tuple(map(_run, runs)),
        tuple(sorted(apis, key=_by_change)),
        tuple(series),
        has_several_ranks,
        _again(runs[-1].journal, worst_of_runs[-1]),
    )


def _again(journal: Journal, worst: Mapping[str, Worst]) -> dict[str, list[str]]:
    names = {(one.record, one.outcome): name for name, one in worst.items()}
    commands: dict[str, list[str]] = {}
    for entry in journal.entries.values():
        name = names.get((entry.result.record, entry.result.outcome))
        if name is not None and (entry.result.verdict.margin == worst[name].margin or name not in commands):
            commands[name] = shlex.split(journal.rerun_command(entry))
    return commands


def _run(whole: WholeRun) -> Run:
    devices = dict.fromkeys(start.description for start in whole.journal.starts)
    return Run(whole.name, whole.began, next(iter(devices), ""), whole.journal.header.settings, whole.paths)


def _by_change(api: ApiTrend) -> tuple[int, int, float, str]:
    order: Sequence[Change] = ("worse", "new", "better", "gone", "")
    last = api.last
    # A factor says little where the margins are small: 0.01 after 0 is not above 0.9 after 0.3.
    margin = 0.0 if last is None or math.isnan(last.margin) else last.margin
    return order.index(api.change), -(last.severity if last else 0), -margin, api.name


_RUNS_SHOWN = 6
_APIS_SHOWN = 30
_NAME_LENGTH = 60

_CHANGES: tuple[Change, ...] = ("worse", "better", "new", "gone")


def trend_text(trend: Trend) -> str:
    """Return the trend as lines of text; CSV and page have every run and API."""
    lines = [_head(trend), *_runs(trend), *_notes(trend), "", *_table(trend), *_series(trend)]
    return printable("\n".join(lines)) + "\n"


def _head(trend: Trend) -> str:
    counted = ((len(trend.changed(change)), change) for change in _CHANGES)
    counts = ", ".join(f"{count} {change}" for count, change in counted if count)
    size = f"{len(trend.runs)} runs, {len(trend.apis)} {trend.of}"
    return f"msprobe trend: {size}; in the last run {counts or 'all as before'}"


def _runs(trend: Trend) -> Iterator[str]:
    for number, run in enumerate(trend.runs, 1):
        device = f", {run.device}" if run.device else ""
        yield f"  {number}  {run.began:%Y-%m-%d %H:%M}  {run.name}{device}"


def _notes(trend: Trend) -> Iterator[str]:
    for name, values in trend.differing_settings().items():
        yield f"  note: {name} differs, which may change margins: {', '.join(map(_shortened, values))}"


def _shortened(value: str) -> str:
    return clipped(value, 24)


def _table(trend: Trend) -> Iterator[str]:
    changed = [api for api in trend.apis if api.change]
    if changed:
        first = max(0, len(trend.runs) - _RUNS_SHOWN)
        numbers = [str(number) for number in range(first + 1, len(trend.runs) + 1)]
        title = ["", "error / allowed, by run", *numbers, "", ""]
        rows = [_row(api, first) for api in changed[:_APIS_SHOWN]]
        yield from aligned([title, *rows], range(2, 2 + len(numbers)))
    if len(changed) > _APIS_SHOWN:
        yield f"and {len(changed) - _APIS_SHOWN} more"
    if len(trend.apis) > len(changed):
        yield f"{len(trend.apis) - len(changed)} as before"


def _series(trend: Trend) -> Iterator[str]:
    if not trend.series:
        return
    first = max(0, len(trend.runs) - _RUNS_SHOWN)
    numbers = [str(number) for number in range(first + 1, len(trend.runs) + 1)]
    has_ranks = trend.has_several_ranks
    yield ""
    title = ["", "median of a series, by run", *numbers]
    rows = [
        ["", clipped(series.name(has_ranks), _NAME_LENGTH), *map(_median, series.spreads[first:])]
        for series in trend.series[:_APIS_SHOWN]
    ]
    yield from aligned([title, *rows], range(2, len(title)))


def _median(spread: Spread | None) -> str:
    return "-" if spread is None else f"{spread.median:.3g}"


def _row(api: ApiTrend, first: int) -> list[str]:
    cells = ["-" if worst is None else str(worst) for worst in api.worst[first:]]
    return [api.change, clipped(api.name, _NAME_LENGTH), *cells, _since(api), _record(api)]


def _since(api: ApiTrend) -> str:
    if api.reference is None or api.last is None or api.change not in ("worse", "better"):
        return ""
    factor = f"x{api.factor:.3g} " if math.isfinite(api.factor) else ""
    return f"{factor}since {api.reference + 1}"


def _record(api: ApiTrend) -> str:
    last = api.last
    return "" if last is None or last.record == api.name else last.record
