"""``pytest-msprobe operators``: dumps of torch's or MindSpore's operators, or of those of a library."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_msprobe.errors import CommandError
from pytest_msprobe.extensions.operators.sweep import FRAMEWORKS, SAMPLES, TASKS, dtypes_of, folder_name

_SHOWN = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add = parser.add_argument
    add(
        "--dtype",
        metavar="DTYPES",
        action="append",
        help="dtypes, with commas between them, each recorded into a folder of its own (repeatable; default: float32)",
    )
    add(
        "--framework",
        choices=FRAMEWORKS,
        default=FRAMEWORKS[0],
        help="whose operators: torch's database, or the table of MindSpore's (default: %(default)s)",
    )
    add(
        "--op",
        metavar="NAME|PATTERN",
        action="append",
        default=[],
        help="only these operators, such as softmax or 'nn.functional.*' (repeatable; default: all)",
    )
    add(
        "--samples",
        metavar="N",
        type=int,
        default=SAMPLES,
        help="at most so many calls of each operator (default: %(default)s)",
    )
    add(
        "--task",
        choices=TASKS,
        default="tensor",
        help="tensor records the inputs themselves, statistics what other inputs are drawn from (default: tensor)",
    )
    add(
        "--file",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="YAML file of other operators and their samples, which are recorded alone without --op (repeatable)",
    )
    add("-o", "--output", metavar="DIR", type=Path, default=Path("operators"), help="folder (default: %(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Record the operators, a dump for each dtype, and print what was recorded.

    Raises CommandError where an operator is unknown or the framework's cannot be used, RecordingError where a folder
    has a dump already, ConfigError for a wrong number.
    """
    dtypes = dtypes_of(arguments.dtype or ["float32"])
    if arguments.samples < 1:
        raise CommandError(f"--samples {arguments.samples}: expected a number from 1 on")
    from pytest_msprobe.engine.import_torch import import_torch

    torch = import_torch()
    from pytest_msprobe.extensions.operators.database import find_operators
    from pytest_msprobe.extensions.operators.recorder import record_operators

    # What is computed here is only recorded, and small.
    torch.set_num_threads(1)
    operators = find_operators(arguments.op, arguments.file, arguments.framework)
    for dtype in dtypes:
        folder = arguments.output / folder_name(dtype, arguments.task)
        sweep = record_operators(folder, operators, dtype, arguments.task, arguments.samples)
        print(f"{folder}: {sweep}")
        for line in _left_out([*sweep.left_out()]):
            print(f"  {line}")
    return 0


def _left_out(operators: Sequence[tuple[str, str]]) -> Iterator[str]:
    if operators:
        yield f"{len(operators)} without a record, which a check cannot judge:"
    for name, why in operators[:_SHOWN]:
        yield f"{name}: {why}"
    if len(operators) > _SHOWN:
        yield f"and {len(operators) - _SHOWN} more, all in operators.json"
