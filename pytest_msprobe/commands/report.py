"""``pytest-msprobe report``: journals as Markdown, JUnit, msprobe's tables and a page, or as a trend."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_msprobe.engine.framework_names import PYTORCH
from pytest_msprobe.errors import CommandError
from pytest_msprobe.extensions.free_benchmark.perturb_table import FreeBenchmarkTables
from pytest_msprobe.extensions.trend.margins import MOST_MOVED, make_trend, trend_text
from pytest_msprobe.extensions.trend.trend_files import FILE_NAME, write_trend_csv, write_trend_page
from pytest_msprobe.journal.journal import Journal, read_journal
from pytest_msprobe.journal.shards import Part, WholeRun, whole_runs
from pytest_msprobe.reports.check_page.html import write_page_of_journals
from pytest_msprobe.reports.csv import TablesByDump
from pytest_msprobe.reports.github import workflow_commands
from pytest_msprobe.reports.history.earlier_runs import EarlierRuns, read_earlier_runs
from pytest_msprobe.reports.markdown import markdown
from pytest_msprobe.storage.atomic_write import atomic_write

_STANDARD_OUTPUT = "-"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the journal and the reports that can be made of it."""
    parser.add_argument(
        "journals",
        metavar="JOURNAL",
        type=Path,
        nargs="+",
        help="file that pytest --msprobe-journal wrote; shards of one run are merged, other runs stay separate",
    )
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
    parser.add_argument("--junit", metavar="FILE", type=Path, help="write JUnit XML to this file")
    parser.add_argument(
        "--junit-family",
        choices=("pytest", "jenkins"),
        default="pytest",
        help="pytest: test cases have properties; jenkins: valid for Jenkins' xUnit plugin, with the properties in the "
        "output (default: pytest)",
    )
    parser.add_argument(
        "--github",
        action="store_true",
        help="in a step of GitHub Actions: annotate failures, and write Markdown to the step's summary",
    )
    parser.add_argument(
        "--markdown",
        metavar="FILE",
        help="write Markdown to this file, or to standard output if it is - (default: -, without other reports)",
    )
    parser.add_argument(
        "--csv",
        metavar="DIR",
        type=Path,
        help="write msprobe's accuracy_checking tables and free_benchmark.csv to this folder; with --trend, trend.csv",
    )
    parser.add_argument(
        "--html", metavar="FILE", type=Path, help="write all records, or the trend, to this file as one HTML page"
    )
    parser.add_argument(
        "--history",
        metavar="DIR",
        type=Path,
        help="with --html, show on the page what the journals of earlier runs in this folder, *.jsonl, hold of each "
        "record",
    )


def run(arguments: argparse.Namespace) -> int:
    """Make the reports. Raises CommandError where a journal cannot be read or a file cannot be written."""
    runs = whole_runs([Part(path, read_journal(path)) for path in dict.fromkeys(arguments.journals)])
    if arguments.trend:
        without = ("junit", "markdown", "github", "history")
        _refuse(arguments, without, "does not work with --trend", "remove one of them")
        _report_trend(arguments, runs)
    else:
        _refuse(
            arguments, ("series",), "has no effect without --trend", "pass --trend and the journals of several runs"
        )
        _report(arguments, runs)
    return 0


def _refuse(arguments: argparse.Namespace, names: tuple[str, ...], what: str, remedy: str) -> None:
    for name in names:
        if getattr(arguments, name):
            raise CommandError(f"--{name} {what}", remedy=remedy)


def _report(arguments: argparse.Namespace, runs: Sequence[WholeRun]) -> None:
    text: str | None = arguments.markdown
    earlier = None if arguments.history is None else _earlier_runs(arguments, runs)
    if arguments.junit:
        _write_junit(runs, arguments.junit, arguments.junit_family)
    if arguments.csv:
        for number, run in enumerate(runs, 1):
            _write_tables(run.journal, arguments.csv if len(runs) == 1 else arguments.csv / f"run{number}")
    if arguments.html:
        with _written(arguments.html) as part:
            write_page_of_journals(part, runs, earlier)
    if text not in (None, _STANDARD_OUTPUT):
        with _written(Path(text)) as part:
            part.write_text(markdown(runs), encoding="utf-8")
    if arguments.github:
        _report_to_github(runs)
    others = (arguments.junit, arguments.csv, arguments.html, arguments.github, text)
    if text == _STANDARD_OUTPUT or not any(others):
        _show(markdown(runs))


def _earlier_runs(arguments: argparse.Namespace, runs: Sequence[WholeRun]) -> EarlierRuns:
    """Return the runs of the folder before all of these, and say on stderr what was found in it."""
    if not arguments.html:
        raise CommandError("--history has no effect without --html", remedy="pass --html FILE")
    try:
        earlier = read_earlier_runs(
            arguments.history,
            before=min(run.began for run in runs),
            modes={run.journal.header.settings.get("mode", "") for run in runs},
            own=[path for run in runs for path in run.paths],
        )
    except OSError as error:
        raise CommandError(f"--history {str(arguments.history)!r}: {error.strerror}") from None
    print(f"history: {earlier}", file=sys.stderr)
    return earlier


def _report_trend(arguments: argparse.Namespace, runs: Sequence[WholeRun]) -> None:
    """Show the trend, and write what else was asked for."""
    if len(runs) < 2:
        raise CommandError("--trend needs the journals of at least two runs")
    trend = make_trend(runs, arguments.series)
    if arguments.series and not trend.series:
        raise CommandError(
            f"--series {', '.join(arguments.series)}: no such series in these journals",
            remedy="pass the name of an item of --msprobe-monitor, such as 'grad_reduced/layers.0.*/norm'",
        )
    if arguments.csv:
        with _written(arguments.csv / FILE_NAME) as part:
            part.parent.mkdir(parents=True, exist_ok=True)
            write_trend_csv(part, trend)
    if arguments.html:
        with _written(arguments.html) as part:
            write_trend_page(part, trend)
    _show(trend_text(trend))


def _show(text: str) -> None:
    sys.stdout.buffer.write(text.encode(sys.stdout.encoding, errors="backslashreplace"))


def _report_to_github(runs: Sequence[WholeRun]) -> None:
    """Write annotations to the step's output, and the summary where GitHub reads it."""
    summary, workspace = os.environ.get("GITHUB_STEP_SUMMARY"), os.environ.get("GITHUB_WORKSPACE")
    if not summary:
        raise CommandError(
            "--github: GITHUB_STEP_SUMMARY is not set",
            remedy="run it in a step of a workflow, or set it to a file",
        )
    try:
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(markdown(runs))
    except OSError as error:
        raise CommandError(f"cannot be written: {error.strerror}", file=Path(summary)) from None
    _show("".join(f"{line}\n" for line in workflow_commands(runs, Path(workspace) if workspace else None)))


def _write_junit(runs: Sequence[WholeRun], path: Path, family: str) -> None:
    try:
        from pytest_msprobe.reports.junit import write_junit
    except ImportError:
        raise CommandError("--junit needs junitparser", remedy="pip install 'pytest-msprobe[junit]'") from None
    with _written(path) as part:
        write_junit(runs, part, are_properties_output=family == "jenkins")


def _write_tables(journal: Journal, folder: Path) -> None:
    framework = journal.header.settings.get("framework", PYTORCH)
    tables = TablesByDump(folder, dict.fromkeys(journal.dumps, framework))
    moved = FreeBenchmarkTables(folder, journal.dumps)
    try:
        for entry in journal.entries.values():
            if entry.command:
                tables.add(None, entry.result)
                continue
            dump = journal.dump_of(entry)
            tables.add(dump, entry.result)
            moved.add(dump, entry.result.record, entry.result.extras)
        tables.close()
        moved.close()
    except OSError as error:
        tables.discard()
        raise CommandError(f"cannot be written: {error.strerror}", file=folder) from None


@contextlib.contextmanager
def _written(path: Path) -> Iterator[Path]:
    try:
        with atomic_write(path) as part:
            yield part
    except OSError as error:
        raise CommandError(f"cannot be written: {error.strerror}", file=path) from None
