"""``pytest-msprobe report``: journals as Markdown, JUnit, msprobe's tables and a page, or as a trend."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from pytest_msprobe.commands.registry import commands
from pytest_msprobe.engine.framework_names import PYTORCH
from pytest_msprobe.errors import CommandError
from pytest_msprobe.journal import Journal, read_journal
from pytest_msprobe.journal.shards import Part, WholeRun, whole_runs
from pytest_msprobe.reports.check_page import write_page_of_journals
from pytest_msprobe.reports.check_page.rows import OF_DUMPS, AboutRun
from pytest_msprobe.reports.csv import TablesByDump
from pytest_msprobe.reports.github import workflow_commands
from pytest_msprobe.reports.history import EarlierRuns, read_earlier_runs
from pytest_msprobe.reports.junit import write_junit
from pytest_msprobe.reports.markdown import markdown
from pytest_msprobe.storage.files import atomic_write

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
    for part in _parts("add_arguments"):
        part.add_arguments(parser)
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
    if not any(part.report_runs(arguments, runs) for part in _parts("report_runs")):
        _report(arguments, runs)
    return 0


def _parts(function: str) -> list[Any]:
    """Return the modules of extensions that add to this command and have a function."""
    modules = map(import_module, commands().report_parts)
    return [module for module in modules if hasattr(module, function)]


def refuse(arguments: argparse.Namespace, names: tuple[str, ...], what: str, remedy: str) -> None:
    """Raise CommandError where one of these options is passed."""
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
        with written(arguments.html) as part:
            write_page_of_journals(part, runs, earlier, _about)
    if text not in (None, _STANDARD_OUTPUT):
        with written(Path(text)) as part:
            part.write_text(markdown(runs), encoding="utf-8")
    if arguments.github:
        _report_to_github(runs)
    others = (arguments.junit, arguments.csv, arguments.html, arguments.github, text)
    if text == _STANDARD_OUTPUT or not any(others):
        show(markdown(runs))


def _about(journal: Journal) -> AboutRun:
    """Return what the page says of a run, by the first extension that knows its kind."""
    answers = (part.about_run(journal) for part in _parts("about_run"))
    return next((about for about in answers if about is not None), OF_DUMPS)


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


def show(text: str) -> None:
    """Write a text to standard output, in whatever encoding that has."""
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
    show("".join(f"{line}\n" for line in workflow_commands(runs, Path(workspace) if workspace else None)))


def _write_junit(runs: Sequence[WholeRun], path: Path, family: str) -> None:
    try:
        with written(path) as part:
            write_junit(runs, part, are_properties_output=family == "jenkins")
    except ImportError:
        raise CommandError("--junit needs junitparser", remedy="pip install 'pytest-msprobe[junit]'") from None


def _write_tables(journal: Journal, folder: Path) -> None:
    framework = journal.header.settings.get("framework", PYTORCH)
    tables = TablesByDump(folder, dict.fromkeys(journal.dumps, framework))
    try:
        for entry in journal.entries.values():
            if entry.command:
                tables.add(None, entry.result)
                continue
            tables.add(journal.dump_of(entry), entry.result)
        tables.close()
        for part in _parts("write_tables"):
            part.write_tables(journal, folder)
    except OSError as error:
        tables.discard()
        raise CommandError(f"cannot be written: {error.strerror}", file=folder) from None


@contextlib.contextmanager
def written(path: Path) -> Iterator[Path]:
    """Open a file of the result for writing. Raises CommandError where it cannot be written."""
    try:
        with atomic_write(path) as part:
            yield part
    except OSError as error:
        raise CommandError(f"cannot be written: {error.strerror}", file=path) from None
