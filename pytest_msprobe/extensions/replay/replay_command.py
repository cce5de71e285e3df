"""``pytest-msprobe replay``: saved cases judged again."""

from __future__ import annotations

import argparse
import importlib
import shlex
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, get_args

from pytest_msprobe.devices.math_modes import MathMode
from pytest_msprobe.errors import CaseError, CommandError
from pytest_msprobe.reports.text import printable

if TYPE_CHECKING:
    from pytest_msprobe.extensions.replay.bench import Bench


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("case", type=Path, metavar="CASE", help="a saved case, or a folder of cases")
    parser.add_argument(
        "--device", default="auto", metavar="NAME[:INDEX]", help="device to judge: npu, cuda, cpu, sim (default: auto)"
    )
    parser.add_argument("--policy", metavar="NAME|FILE", help="policy that judges (default: that of the case)")
    parser.add_argument(
        "--level", metavar="LEVEL", help="strictness of the policy msprobe-26: L0, L1 or L2 (default: that of the case)"
    )
    parser.add_argument(
        "--math-mode",
        choices=get_args(MathMode),
        help="auto allows for TF32 and other modes that the device reports as on, strict judges by the dtype alone "
        "(default: as in the case)",
    )
    parser.add_argument(
        "-p",
        dest="plugins",
        action="append",
        default=[],
        metavar="MODULE",
        help="module with pytest_msprobe_register_* hooks, such as conftest (repeatable)",
    )
    parser.add_argument("-v", dest="verbosity", action="count", default=0, help="show all outputs; -vv: all numbers")


def run(arguments: argparse.Namespace) -> int:
    """Judge the cases: 0 where none is wrong, 1 where one is, 2 where one could not be judged."""
    try:
        from pytest_msprobe.extensions.replay.bench import Bench
        from pytest_msprobe.modes.check.saved_case import find_cases
    except ImportError as error:
        raise CommandError(str(error), remedy="pip install 'pytest-msprobe[cases,torch]'") from None
    folders = find_cases(arguments.case)
    plugins = [_plugin(name) for name in arguments.plugins]
    bench = Bench(arguments.device, arguments.policy, arguments.level, plugins, arguments.math_mode)
    places: set[str] = set()
    statuses = [_replay(bench, folder, arguments, places) for folder in folders]
    if len(folders) > 1:
        counts = Counter(_STATUS[status] for status in statuses)
        print(f"{len(folders)} cases: {', '.join(f'{count} {word}' for word, count in counts.items())}")
    return max(statuses)


_STATUS = {0: "right", 1: "wrong", 2: "not judged"}


def _replay(bench: Bench, folder: Path, arguments: argparse.Namespace, places: set[str]) -> int:
    """Judge one case, print the result, and a new place before it, and return its status."""
    try:
        judged = bench.judge(folder)
    except CaseError as error:
        print(printable(f"pytest-msprobe: {error}"), file=sys.stderr)
        return 2
    if judged.place not in places:
        places.add(judged.place)
        print(printable(f"on {judged.place}"))
    print(printable(judged.text(_command(folder, arguments), arguments.verbosity)))
    print(printable(f"recorded in {judged.case.dump}::{judged.result.record}"))
    return {"fail": 1, "skip": 2}.get(judged.result.verdict.outcome, 0)


def _command(folder: Path, arguments: argparse.Namespace) -> str:
    words = ["pytest-msprobe", "replay", str(folder), "--device", arguments.device]
    for flag, values in (
        ("--policy", [arguments.policy]),
        ("--level", [arguments.level]),
        ("--math-mode", [arguments.math_mode]),
        ("-p", arguments.plugins),
    ):
        words += [word for value in values if value for word in (flag, value)]
    return shlex.join(words)


def _plugin(name: str) -> ModuleType:
    if "" not in sys.path:
        # As python -m does: a module in the folder where the command was started.
        sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise CommandError(f"-p {name}: {error}", remedy="pass a module that can be imported from here") from None
