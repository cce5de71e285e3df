"""``pytest-msprobe follow``: the steps of a training are checked while it runs, one run of pytest each."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from msprobe_hooks.messages import parse_size
from pytest_msprobe.errors import CommandError
from pytest_msprobe.extensions.follow.folder import FailedLimits
from pytest_msprobe.extensions.follow.follow import Request, follow
from pytest_msprobe.reports.text import echo

_JOURNAL = "journal.jsonl"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folder, when to end, and the options of pytest."""
    parser.add_argument(
        "folder", metavar="DIR", type=Path, help="spool folder: the dump_path of a recording with spool_size"
    )
    parser.set_defaults(options=[])
    parser.usage = "%(prog)s [options] DIR -- [options of pytest, such as --msprobe-device npu -n 4]"
    parser.add_argument(
        "--journal",
        type=Path,
        metavar="FILE",
        help=f"journal of all steps; an existing one is continued (default: DIR/{_JOURNAL})",
    )
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="exit after this many seconds (default: no limit)"
    )
    parser.add_argument(
        "--idle",
        type=float,
        metavar="SECONDS",
        help="exit after this many seconds without a new step (default: no limit)",
    )
    parser.add_argument(
        "--failed-steps", type=int, default=20, metavar="N", help="number of failed steps to keep (default: 20)"
    )
    parser.add_argument(
        "--failed-size",
        default="10GiB",
        metavar="SIZE",
        help="total size of failed steps to keep, such as 500MiB; the last one is always kept (default: 10GiB)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Check steps until the end; return 1 where a step failed, else 0. Raises UserError as ``spool.follow`` does."""
    for name in ("timeout", "idle"):
        seconds = getattr(arguments, name)
        if seconds is not None and not 0 < seconds < math.inf:
            raise CommandError(f"--{name} {seconds:g}: expected a number of seconds above 0")
    if arguments.failed_steps < 1:
        raise CommandError(f"--failed-steps {arguments.failed_steps}: expected a number of at least 1")
    size = parse_size(arguments.failed_size)
    if size is None:
        raise CommandError(f"--failed-size {arguments.failed_size}: expected a size, such as 10GiB")
    request = Request(
        folder=arguments.folder,
        options=arguments.options,
        journal=arguments.journal or arguments.folder / _JOURNAL,
        failed=FailedLimits(arguments.failed_steps, size),
        timeout=arguments.timeout,
        idle=arguments.idle,
    )
    return follow(request, echo)
