"""``pytest-msprobe graph``: the graph of a recorded run, or of two, for msprobe's TensorBoard viewer."""

from __future__ import annotations

import argparse
from pathlib import Path

from msprobe_hooks.dump.layout import find_dumps
from pytest_msprobe.errors import CommandError
from pytest_msprobe.reports.text import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add = parser.add_argument
    add("dump", type=Path, help="dump.json, or a folder of steps and ranks, recorded at level L0 or mix")
    add("--golden", type=Path, metavar="DUMP", help="the run to set beside it, as pytest --msprobe-compare does")
    add("-o", "--output", type=Path, default=Path("graphs"), metavar="DIR", help="default: %(default)s")
    add("--format", choices=("db", "json"), default="db", help=".vis.db, one file, or .vis (default: %(default)s)")
    add("--complete-stack", action="store_true", help="nodes show their whole call stack, not only one line")
    add("--overflow", action="store_true", help="colour nodes by inf and nan as well")
    add("--fuzzy", action="store_true", help="match calls by API and structure, whatever their numbers")
    add("--layer-mapping", type=Path, metavar="FILE", help="YAML file of layers called otherwise in the golden run")
    add("--policy", default="default", metavar="NAME|FILE", help="what judges the differences (default: %(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Write the files, print where they are, and return 0. Raises a UserError or DumpError."""
    if not arguments.dump.exists():
        raise CommandError("no such file or folder", file=arguments.dump)
    paths = [arguments.dump] if arguments.dump.is_file() else find_dumps(arguments.dump)
    try:
        written = _single(arguments, paths) if arguments.golden is None else _compared(arguments, paths)
    except OSError as error:
        raise CommandError(f"graphs cannot be written: {error.strerror or error}", file=arguments.output) from None
    for path in written:
        print(printable(f"{path}"))
    print(printable(f"look at them with: tensorboard --logdir {arguments.output}"))
    return 0


def _single(arguments: argparse.Namespace, paths: list[Path]) -> list[Path]:
    from msprobe_hooks.dump.reader import read_dump
    from pytest_msprobe.graphs.vis.folder import open_graphs, require_free
    from pytest_msprobe.graphs.vis.picture import Manner
    from pytest_msprobe.graphs.vis.single import draw_single, places_of

    for given in ("fuzzy", "layer_mapping"):
        if getattr(arguments, given):
            raise CommandError(f"--{given.replace('_', '-')} is for two runs: give --golden DUMP as well")
    require_free(arguments.output)
    places = places_of(paths)
    manner = Manner(overflow=arguments.overflow, all_frames=arguments.complete_stack)
    with open_graphs(arguments.output, manner, arguments.format) as (database, written):
        # One after the other, so that memory is that of one rank.
        draw_single(database, map(read_dump, paths), places)
    return written


def _compared(arguments: argparse.Namespace, paths: list[Path]) -> list[Path]:
    from pytest_msprobe.graphs.vis.folder import require_free
    from pytest_msprobe.graphs.vis.options import VisOptions
    from pytest_msprobe.modes.compare.across.options import AcrossOptions
    from pytest_msprobe.modes.compare.graphs import write_graphs
    from pytest_msprobe.modes.compare.options import CompareOptions
    from pytest_msprobe.modes.compare.policy import load_policy

    require_free(arguments.output)
    for given in ("golden", "layer_mapping"):
        path = getattr(arguments, given)
        if path is not None and not path.exists():
            raise CommandError(f"--{given.replace('_', '-')} {str(path)!r}: no such file or folder")
    try:
        policy = load_policy(arguments.policy)
    except ValueError as error:
        raise CommandError(f"--policy: {error}") from None
    options = CompareOptions(
        golden=arguments.golden,
        fuzzy=arguments.fuzzy,
        mapping=None,
        quick=False,
        across=AcrossOptions(layers=arguments.layer_mapping),
    )
    vis = VisOptions(arguments.output, arguments.format, arguments.complete_stack)
    return write_graphs(paths, options, policy, vis, overflow=arguments.overflow)
