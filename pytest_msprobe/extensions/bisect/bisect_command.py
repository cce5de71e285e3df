"""``pytest-msprobe bisect``: which call's precision changes a number, found by running a program repeatedly."""

from __future__ import annotations

import argparse
import math
import os
import shlex
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from msprobe_hooks.extensions.fix.run_plan import PRECISIONS
from pytest_msprobe.errors import CommandError
from pytest_msprobe.extensions.bisect.bisection import Bisection, found_text, nothing_text
from pytest_msprobe.extensions.bisect.command import BisectionJournal, Command, Header, Metric, read_metric
from pytest_msprobe.reports.text import echo, printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command to run, and which number of it is compared."""
    parser.add_argument(
        "words",
        metavar="-- COMMAND",
        nargs="+",
        help="a command that runs Python, such as python train.py or torchrun ..., or the id of one pytest test",
    )
    parser.add_argument(
        "--to",
        choices=PRECISIONS,
        default="float32",
        help="precision that calls are raised to; cpu is float32 or more, computed on the CPU (default: float32)",
    )
    number = parser.add_mutually_exclusive_group()
    number.add_argument(
        "--metric",
        metavar="REGEX",
        help="compare the first group of the last match in standard output, such as 'loss: (.*)' (default: the last "
        "float)",
    )
    number.add_argument(
        "--exit-status", action="store_true", help="compare the exit status (default for a pytest test)"
    )
    parser.add_argument(
        "--bound",
        type=float,
        metavar="X",
        help="smallest change of the number that counts (default: 10 %% of the change by all calls, above rounding "
        "noise)",
    )
    parser.add_argument(
        "--custom-op-namespaces",
        action="extend",
        type=_namespaces,
        default=[],
        metavar="NAMES",
        help="also raise operators of these libraries, separated by commas, such as mylib for torch.ops.mylib.swish",
    )
    parser.add_argument("--max-runs", type=int, metavar="N", help="maximum number of runs (default: no limit)")
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="end the search if one run takes longer (default: no limit)"
    )
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument(
        "--journal", type=Path, metavar="FILE", help="write a line for each run to this new file, for --resume"
    )
    kept.add_argument("--resume", type=Path, metavar="FILE", help="continue the search of this journal, and add to it")


def run(arguments: argparse.Namespace) -> int:
    """Search, and print what was found; return 1 where a call was, else 0. Raises CommandError and JournalError."""
    if arguments.bound is not None and not arguments.bound >= 0:
        raise CommandError(f"--bound {arguments.bound:g}: expected a number of at least 0")
    if arguments.max_runs is not None and arguments.max_runs < 1:
        raise CommandError(f"--max-runs {arguments.max_runs}: expected a number of at least 1")
    if arguments.timeout is not None and not 0 < arguments.timeout < math.inf:
        raise CommandError(f"--timeout {arguments.timeout:g}: expected a number of seconds above 0")
    command = _command(arguments)
    journal = BisectionJournal(
        arguments.journal or arguments.resume, _header(command), is_resumed=arguments.resume is not None
    )
    bisection = Bisection(command, journal, echo, arguments.max_runs)
    try:
        culprit = bisection.find(arguments.bound)
    finally:
        journal.close()
    print()
    print(printable(nothing_text(bisection) if culprit is None else found_text(culprit, bisection)))
    return 0 if culprit is None else 1


def _command(arguments: argparse.Namespace) -> Command:
    words: Sequence[str] = arguments.words
    is_test = len(words) == 1 and "::" in words[0]
    if is_test:
        words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-s", words[0]]
    accepted: Collection[int] | None = None if arguments.exit_status else (0,)
    is_exit_status = arguments.exit_status
    if is_test and not is_exit_status and arguments.metric is None:
        # Of pytest's others, none is about a test that ran.
        is_exit_status, accepted = True, (0, 1)
    metric = read_metric(arguments.metric, is_exit_status=is_exit_status)
    return Command(words, arguments.to, metric, accepted, arguments.timeout, arguments.custom_op_namespaces)


def _namespaces(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(map(str.isidentifier, names)):
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected names of libraries, such as mylib for torch.ops.mylib.swish"
        )
    return names


def _header(command: Command) -> Header:
    metric: Metric = command.metric
    # The working directory's own text, since nothing but equality is asked of it.
    return Header(
        command=shlex.join(command.words),
        directory=os.getcwd(),  # noqa: PTH109
        to=command.to,
        metric=str(metric),
        custom_op_namespaces=sorted(set(command.custom_op_namespaces)),
    )
