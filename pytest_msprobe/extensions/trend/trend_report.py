"""``pytest-msprobe report --trend``: changes of margins over the journals of several runs, as text, table and page."""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_msprobe.commands.report import refuse, show, written
from pytest_msprobe.errors import CommandError
from pytest_msprobe.extensions.trend.margins import (
    MOST_MOVED,
    ApiTrend,
    Run,
    SeriesTrend,
    Trend,
    make_trend,
    trend_text,
)
from pytest_msprobe.journal.shards import WholeRun
from pytest_msprobe.reports.csv import as_text
from pytest_msprobe.reports.pages import PageLink, page_number, page_of_journal, relative_address, write_page
from pytest_msprobe.reports.worst_margins import AT_MOST, Worst

FILE_NAME = "trend.csv"
_MOST_LINKS = 20


def write_trend_csv(path: Path, trend: Trend) -> None:
    """Write the table; of a run that judged nothing of an API both cells are empty. Raises OSError."""
    with path.open("w", encoding="utf-8", newline="", errors="backslashreplace") as file:
        writer = csv.writer(file)
        runs = [f"{run.began:%Y-%m-%d %H:%M} {run.name}" for run in trend.runs]
        titles = [as_text(f"{run} {what}") for run in runs for what in ("margin", "outcome")]
        writer.writerow(["api", "change", "factor", "record", *titles])
        writer.writerows(_row(api) for api in trend.apis)


def write_trend_page(path: Path, trend: Trend) -> None:
    """Write the page. Raises OSError where the disk refuses."""
    links = [link for number, run in enumerate(trend.runs, 1) for link in _page_links(path, run, number)][-_MOST_LINKS:]
    write_page(path, __package__, _data(trend), title="Trend", parts=("uplot", "plot", "table"), links=links)


def _page_links(path: Path, run: Run, number: int) -> list[PageLink]:
    """Return a link from the trend to the page of a run, where one lies next to its journal."""
    return [
        PageLink(f"{number}: {run.began:%Y-%m-%d %H:%M}", relative_address(path, page), f"The page of {journal.name}")
        for journal in run.paths
        if (page := page_of_journal(journal)) is not None
    ]


def _row(api: ApiTrend) -> list[str | float]:
    cells: list[str | float] = []
    for worst in api.worst:
        cells += ["", ""] if worst is None else [_cell(worst), worst.outcome]
    factor = "" if math.isnan(api.factor) else api.factor
    record = "" if api.last is None else as_text(api.last.record)
    return [as_text(api.name), api.change, factor, record, *cells]


def _cell(worst: Worst) -> str | float:
    return f"{AT_MOST}{worst.margin}" if worst.at_most else worst.margin


def _data(trend: Trend) -> dict[str, Any]:
    differing = trend.differing_settings()
    return {
        "title": _answer(trend),
        "of": trend.of,
        "runs": [[run.name, f"{run.began:%Y-%m-%d %H:%M}", run.device] for run in trend.runs],
        "notes": [
            f"{name} differs, which may change margins: {', '.join(values)}" for name, values in differing.items()
        ],
        "apis": [[*_api(api), trend.again.get(api.name, ())] for api in trend.apis],
        "series": [_series(series, trend.has_several_ranks) for series in trend.series],
    }


def _answer(trend: Trend) -> str:
    """Return how many got worse, and the first of them."""
    worse, runs = trend.changed("worse"), len(trend.runs)
    if not worse:
        return f"none of {len(trend.apis)} {trend.of} got worse in the last of {runs} runs"
    factor = "" if math.isnan(worse[0].factor) else f", x{worse[0].factor:.3g}".replace("e+0", "e")
    whole = f"{len(worse)} of {len(trend.apis)} {trend.of} got worse in the last of {runs} runs"
    return f"{whole}, first {worse[0].name}{factor}"


def _api(api: ApiTrend) -> list[Any]:
    worst = [None if one is None else _worst(one) for one in api.worst]
    return [api.name, api.change, _number(api.factor), worst]


def _worst(one: Worst) -> list[Any]:
    return [_number(one.margin), one.outcome, one.record, one.judged, int(one.at_most)]


def _series(series: SeriesTrend, has_several_ranks: bool) -> list[Any]:
    spreads = [None if one is None else [one.least, one.median, one.greatest] for one in series.spreads]
    return [series.name(has_several_ranks), series.item, spreads]


def _number(value: float) -> float | str | None:
    """Return a number, or the word for what JSON has no number for; None for NaN."""
    return None if math.isnan(value) else page_number(value)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--trend`` and what goes with it."""
    parser.add_argument(
        "--trend", action="store_true", help="report how the margins of each API change over several journals, by date"
    )
    parser.add_argument(
        "--series",
        metavar="PATTERN",
        action="append",
        default=[],
        help="with --trend, show these series of monitored runs, such as 'grad_reduced/layers.0.*/norm' (repeatable; "
        f"default: the {MOST_MOVED} norms that changed most)",
    )


def report_runs(arguments: argparse.Namespace, runs: Sequence[WholeRun]) -> bool:
    """Show the trend where it is asked for, write what else is, and return whether it was."""
    if not arguments.trend:
        refuse(arguments, ("series",), "has no effect without --trend", "pass --trend and the journals of several runs")
        return False
    refuse(arguments, ("junit", "markdown", "github", "history"), "does not work with --trend", "remove one of them")
    if len(runs) < 2:
        raise CommandError("--trend needs the journals of at least two runs")
    trend = make_trend(runs, arguments.series)
    if arguments.series and not trend.series:
        raise CommandError(
            f"--series {', '.join(arguments.series)}: no such series in these journals",
            remedy="pass the name of an item of --msprobe-monitor, such as 'grad_reduced/layers.0.*/norm'",
        )
    if arguments.csv:
        with written(arguments.csv / FILE_NAME) as part:
            part.parent.mkdir(parents=True, exist_ok=True)
            write_trend_csv(part, trend)
    if arguments.html:
        with written(arguments.html) as part:
            write_trend_page(part, trend)
    show(trend_text(trend))
    return True
