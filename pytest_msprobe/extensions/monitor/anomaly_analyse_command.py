"""``pytest-msprobe msprobe anomaly-analyse``: the earliest anomalies of all ranks, from ``anomaly.json`` files."""

from __future__ import annotations

import argparse
import heapq
import json
from dataclasses import asdict
from pathlib import Path

from msprobe_hooks.extensions.monitor.series.anomalies import Anomaly
from msprobe_hooks.json_decoding import JsonError, decode_json
from pytest_msprobe.errors import CommandError
from pytest_msprobe.extensions.monitor.series_names import ANALYSIS_FILE, read_anomalies
from pytest_msprobe.reports.text import one_line
from pytest_msprobe.storage.files import atomic_write


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments; their names are msprobe's."""
    parser.add_argument(
        "-d", "--data_path", type=Path, required=True, metavar="DIR", help="folder that holds rank<n>/anomaly.json"
    )
    parser.add_argument(
        "-o", "--out_path", type=Path, metavar="DIR", help=f"folder for {ANALYSIS_FILE} (default: the folder of -d)"
    )
    parser.add_argument(
        "-k", "--topk", type=int, default=8, metavar="N", help="number of anomalies to list (default: 8)"
    )
    parser.add_argument(
        "-s", "--step", default="[]", metavar="STEPS", help="only these steps, such as [3,4] (default: all)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print and write the earliest anomalies, and return 0. Raises CommandError for what cannot be read or written."""
    if arguments.topk < 1:
        raise CommandError(f"--topk {arguments.topk}: expected a number of at least 1")
    steps, anomalies = _steps(arguments.step), read_anomalies(arguments.data_path)
    selected = [(key, entry) for key, entry in anomalies if not steps or entry.step in steps]
    first = heapq.nsmallest(arguments.topk, selected, key=lambda named: named[1].order)
    path = (arguments.out_path or arguments.data_path) / ANALYSIS_FILE
    _write(path, first)
    print(one_line(f"{len(first)} of {len(selected)} anomalies, earliest first: {path}"))
    for number, (_, anomaly) in enumerate(first):
        print(one_line(f"{number}: {anomaly.message}"))
    return 0


def _steps(text: str) -> list[int]:
    try:
        return decode_json(text.encode(), list[int])
    except JsonError:
        raise CommandError(f"--step {text!r}: expected steps in brackets, such as [3,4]") from None


def _write(path: Path, anomalies: list[tuple[str, Anomaly]]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as part:
            part.write_text(
                json.dumps({key: asdict(anomaly) for key, anomaly in anomalies}, indent=1), encoding="utf-8"
            )
    except OSError as error:
        raise CommandError(f"cannot be written: {error.strerror or error}", file=path) from None
