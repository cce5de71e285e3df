"""``pytest-msprobe generate``: stand-alone tests for records of a dump."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add = parser.add_argument
    add("dump", type=Path, metavar="DUMP", help="dump.json, a folder with one, or saved failing cases")
    add(
        "-o",
        "--output",
        type=Path,
        default=Path("generated_tests"),
        metavar="DIR",
        help="folder for the tests (default: %(default)s)",
    )
    add(
        "-k",
        dest="keywords",
        metavar="EXPR",
        default="",
        help="only records that match this expression, as in pytest -k",
    )
    add("--failed", type=Path, metavar="JOURNAL", help="only records that failed in this journal of the dump")
    add("--direction", choices=("forward", "backward"), help="only this direction (default: both)")
    add("--seed", type=int, metavar="N", help="seed of random inputs (default: that of the journal, or 0)")
    add("--iterations", type=int, default=1, metavar="N", help="number of seeds to test each record with (default: 1)")
    add(
        "--real-data",
        action=argparse.BooleanOptionalAction,
        help="copy recorded tensors, or draw inputs from statistics (default: as in the journal, or from statistics)",
    )
    add("--no-run", action="store_true", help="only write the tests (default: run each module once, on its own)")
    add(
        "--msprobe-device",
        dest="device",
        metavar="NAME",
        help="device of these runs (default: that of the journal, or auto)",
    )
    add(
        "--msprobe-policy",
        dest="policy",
        metavar="NAME|FILE",
        help="policy of these runs (default: that of the journal)",
    )
    add(
        "--run-options",
        default="",
        metavar="OPTIONS",
        help="more options of pytest for these runs, such as --run-options='-p my_plugin'",
    )
    add(
        "--patience",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="maximum seconds that one record may run (default: 300)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the tests, run them, and return 1 where one fails."""
    from pytest_msprobe.extensions.generate.generator import Request, generate

    return generate(Request(**{name: value for name, value in vars(arguments).items() if name != "run"}))
