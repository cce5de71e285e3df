"""``pytest-msprobe watch``: the steps of a training are checked while it runs, one run of pytest each."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from msprobe_hooks.byte_sizes import parse_size
from pytest_msprobe.errors import CommandError
from pytest_msprobe.reports.text import printable
from pytest_msprobe.spool.folder import FailedLimits
from pytest_msprobe.spool.watch import Request, watch

_JOURNAL = "journal.jsonl"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folder, when the watch ends, and what pytest is given."""
    parser.add_argument("folder", metavar="DIR", type=Path, help="the dump_path of a recording with spool_size")
    parser.set_defaults(options=[])
    parser.usage = "%(prog)s [options] DIR -- [options of pytest, as --msprobe-device npu -n 4]"
    parser.add_argument(
        "--journal",
        type=Path,
        metavar="FILE",
        help=f"the journal of all steps, new or to go on (default: DIR/{_JOURNAL})",
    )
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="end after so long")
    parser.add_argument("--idle", type=float, metavar="SECONDS", help="end where no step came for so long")
    parser.add_argument(
        "--failed-steps", type=int, default=20, metavar="N", help="keep so many steps that failed (default: 20)"
    )
    parser.add_argument(
        "--failed-size",
        default="10GiB",
        metavar="SIZE",
        help="keep so many bytes of steps that failed, and always the last one (default: 10GiB)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Watch until told to end; return 1 where a step failed, else 0. Raises UserError as ``spool.watch`` does."""
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
    return watch(request, _tell)


def _tell(line: str) -> None:
    print(printable(line), flush=True)
