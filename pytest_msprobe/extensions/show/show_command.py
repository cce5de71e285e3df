"""``pytest-msprobe show``: the content of a tensor, and where two of them differ."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pytest_msprobe.errors import CommandError
from pytest_msprobe.reports.page_file import cannot_be_written
from pytest_msprobe.storage.files import atomic_write

if TYPE_CHECKING:
    from pytest_msprobe.extensions.show.pairs import Judging
    from pytest_msprobe.extensions.show.writers import Shown

_STANDARD_OUTPUT = "-"
_COUNT = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the one or two files to look at, how they are judged, and what is written."""
    parser.add_argument(
        "first",
        metavar="FILE",
        help="a .npy, .pt or .safetensors file, dump.json::RECORD, or the folder of a saved case; FILE::NAME chooses "
        "one of several tensors",
    )
    parser.add_argument("second", metavar="FILE2", nargs="?", help="compare with this file, named in the same way")
    parser.add_argument(
        "--policy",
        metavar="NAME|FILE",
        default="default",
        help="policy that judges two tensors, as in a comparison of runs (default: %(default)s)",
    )
    parser.add_argument("--standard", metavar="NAME", help="judge by this standard of checks, and not by a policy")
    parser.add_argument(
        "--rtol",
        metavar="RTOL",
        type=_tolerance,
        help="count elements whose error exceeds ATOL plus RTOL times the size of FILE2's element (default: that of "
        "torch.testing.assert_close)",
    )
    parser.add_argument(
        "--atol", metavar="ATOL", type=_tolerance, help="absolute part of that limit (default: likewise)"
    )
    parser.add_argument(
        "--count", metavar="N", type=_count, default=_COUNT, help="number of elements to list (default: %(default)s)"
    )
    parser.add_argument("--map", action="store_true", help="also draw the error map of tensors that pass")
    parser.add_argument("--html", metavar="FILE", type=Path, help="write one HTML page to this file")
    parser.add_argument(
        "--json", metavar="FILE", help="write the findings as JSON to this file, or to standard output if it is -"
    )


def _tolerance(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of at least 0")
    return value


def _count(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number from 0 to 1000")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Show it, and return 1 where two tensors differ by more than they may.

    Raises CommandError for what cannot be read, is unknown, or cannot be written.
    """
    from pytest_msprobe.extensions.show.writers import show_lines

    shown = _found(arguments)
    if arguments.html is not None:
        from pytest_msprobe.extensions.show.writers import write_show_page

        _write(arguments.html, lambda part: write_show_page(part, shown))
    if arguments.json == _STANDARD_OUTPUT:
        print(_as_json(shown).decode())
    else:
        if arguments.json is not None:
            _write(Path(arguments.json), lambda part: part.write_bytes(_as_json(shown)))
        for line in show_lines(shown):
            print(line)
    return 1 if shown.outcome == "fail" else 0


def _found(arguments: argparse.Namespace) -> Shown:
    from msprobe_hooks.torch.torch_files import weights_only_warning
    from pytest_msprobe.engine.import_torch import import_torch

    import_torch()
    from pytest_msprobe.extensions.show.open_named import open_named
    from pytest_msprobe.extensions.show.pairs import pair_up
    from pytest_msprobe.extensions.show.tensor_differences import look
    from pytest_msprobe.extensions.show.writers import Shown

    if warning := weights_only_warning():
        print(f"pytest-msprobe: warning: {warning}", file=sys.stderr)
    first = open_named(arguments.first)
    if arguments.second is None:
        return Shown((arguments.first,), tuple(look(named, arguments.count) for named in first))
    judging = _judging(arguments)
    judged = f"standard {judging.standard}" if judging.standard else f"policy {judging.policy.name}"
    pairs = tuple(pair_up(first, open_named(arguments.second), judging))
    return Shown((arguments.first, arguments.second), pairs=pairs, judged=judged)


def _judging(arguments: argparse.Namespace) -> Judging:
    from msprobe_standards.registry import standard
    from pytest_msprobe.extensions.show.pairs import Judging
    from pytest_msprobe.modes.compare.judging.policy import load_policy

    try:
        policy = load_policy(arguments.policy)
    except ValueError as error:
        raise CommandError(f"--policy: {error}") from None
    try:
        if arguments.standard is not None:
            standard(arguments.standard)
    except ValueError as error:
        raise CommandError(f"--standard: {error}") from None
    return Judging(policy, arguments.standard, arguments.rtol, arguments.atol, arguments.count, arguments.map)


def _as_json(shown: Shown) -> bytes:
    from pytest_msprobe.results.result import as_json

    return msgspec.json.format(msgspec.json.encode(as_json(msgspec.to_builtins(shown))), indent=1) + b"\n"


def _write(path: Path, write: Callable[[Path], object]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as part:
            write(part)
    except OSError as error:
        raise CommandError(cannot_be_written(path, error)) from None
