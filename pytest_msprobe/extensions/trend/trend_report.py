"""``pytest-msprobe report --trend``: how margins change over the journals of several runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pytest_msprobe.commands.report import refuse, show, written
from pytest_msprobe.errors import CommandError
from pytest_msprobe.extensions.trend.margins import MOST_MOVED, make_trend, trend_text
from pytest_msprobe.extensions.trend.trend_files import FILE_NAME, write_trend_csv, write_trend_page
from pytest_msprobe.journal.shards import WholeRun


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
