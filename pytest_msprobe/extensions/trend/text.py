"""The trend on the screen: the runs, then the APIs that changed."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pytest_msprobe.extensions.trend.margins import ApiTrend, Change, Trend
from pytest_msprobe.reports.text import aligned, clipped, printable
from pytest_msprobe.results.value_range import Spread

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
