"""``pytest-msprobe msprobe series``: recorded or monitored statistics as msprobe's ``.trend.db``, and back."""

from __future__ import annotations

import argparse
from pathlib import Path

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.series.conversion import SUFFIX, read_database, write_database
from msprobe_hooks.extensions.monitor.series.csv_files import CsvWriter
from msprobe_hooks.extensions.monitor.series.paths import run_folder
from msprobe_hooks.extensions.monitor.series.reader import open_run, rank_folders
from msprobe_hooks.messages import counted
from pytest_msprobe.errors import CommandError
from pytest_msprobe.reports.text import one_line

# With so many a number is written as it is.
_ALL_DIGITS = 400
_STEPS_PER_FILE = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run and the place of the result."""
    parser.add_argument(
        "source",
        metavar="RUN",
        type=Path,
        help=f"folder of a recording or of a monitored run, or msprobe's {SUFFIX} file",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="PATH",
        type=Path,
        required=True,
        help=f"{SUFFIX} file to write, or, for a {SUFFIX} file, the folder for a monitored run of CSV files",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write what was asked for, print a summary, and return 0. Raises CommandError or MonitorError."""
    source, target = arguments.source, arguments.output
    if source.name.endswith(SUFFIX):
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise CommandError("exists and is not an empty folder", file=target, remedy="choose another folder")
        lines = _write_folder(source, target)
    elif target.name.endswith(SUFFIX):
        lines = _write_database(source, target)
    else:
        raise CommandError(
            f"-o {target}: not a {SUFFIX} file", remedy=f"name a file such as {target.name}{SUFFIX}, which is written"
        )
    for line in lines:
        print(one_line(line))
    return 0


def _write_database(source: Path, target: Path) -> list[str]:
    if not source.exists():
        raise MonitorError(f"{source}: no such folder; pass the folder of a recording or of a monitored run")
    runs = {run.rank or 0: run for run in map(open_run, rank_folders(source))}
    target.parent.mkdir(parents=True, exist_ok=True)
    notes = [f"rank {rank}: {note}" for rank, run in runs.items() for note in run.notes]
    notes += write_database(target, runs)
    series = sum(len(run.keys) for run in runs.values())
    return [*notes, f"{counted(series, 'series', 'series')} of {counted(len(runs), 'rank')}: {target}"]


def _write_folder(source: Path, target: Path) -> list[str]:
    writers: dict[int, CsvWriter] = {}
    count = 0
    for rank, statistics, rows in read_database(source):
        if rank not in writers:
            folder = run_folder(target, rank)
            writers[rank] = CsvWriter(folder, statistics, ndigits=_ALL_DIGITS, steps_per_file=_STEPS_PER_FILE)
        writers[rank].add(rows)
        count += len(rows)
    if not writers:
        raise CommandError("holds no row", file=source, remedy="pass the .trend.db that data2db wrote")
    return [
        f"numbers beyond 1e9 are 1e9 in {source.name}, as its format has them",
        f"{counted(count, 'row')} of {counted(len(writers), 'rank')}: {target}",
    ]
