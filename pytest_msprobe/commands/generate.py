"""``pytest-msprobe generate``: stand-alone tests for records of a dump."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add = parser.add_argument
    add("dump", type=Path, help="dump.json, a folder that holds one, or saved failing cases")
    add("-o", "--output", type=Path, default=Path("generated_tests"), metavar="FOLDER", help="default: %(default)s")
    add("-k", dest="keywords", metavar="EXPR", default="", help="choose records as pytest -k does")
    add("--failed", type=Path, metavar="JOURNAL", help="write tests for what failed in this journal of the dump")
    add("--direction", choices=("forward", "backward"), help="test only this direction (default: both)")
    add("--seed", type=int, help="seed of drawn inputs (default: the journal's, else 0)")
    add("--iterations", type=int, default=1, metavar="N", help="test each record with N seeds (default: 1)")
    add(
        "--real-data",
        action=argparse.BooleanOptionalAction,
        help="copy recorded tensors (default: as the journal's run did, else draw from statistics)",
    )
    add("--no-run", action="store_true", help="only write the tests; by default each module is run once, on its own")
    add(
        "--msprobe-device",
        dest="device",
        metavar="NAME",
        help="device of these runs (default: the journal's, else auto)",
    )
    add("--msprobe-policy", dest="policy", metavar="NAME|FILE", help="policy of these runs (default: the journal's)")
    add(
        "--run-options",
        default="",
        metavar="OPTIONS",
        help="more options of pytest for them, as in --run-options='-p my_plugin'",
    )
    add("--patience", type=float, default=300.0, metavar="SECONDS", help="how long one record may run (default: 300)")


def run(arguments: argparse.Namespace) -> int:
    """Write the tests, run them, and return 1 where one fails."""
    from pytest_msprobe.generate.generator import Request, generate

    return generate(Request(**{name: value for name, value in vars(arguments).items() if name != "run"}))
