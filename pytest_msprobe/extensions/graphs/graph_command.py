"""``pytest-msprobe graph``: the graph of a recorded run, or of two, as a page or for msprobe's TensorBoard viewer."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe_hooks.errors import RecordError
from pytest_msprobe.errors import CommandError, no_effect
from pytest_msprobe.reports.text import printable

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.modes.compare.dump_pair import DumpPair
    from pytest_msprobe.modes.compare.judging.policy import ComparePolicy
    from pytest_msprobe.modes.compare.options import CompareOptions
    from pytest_msprobe.modes.compare.rows import ComparedCall
    from pytest_msprobe.modes.compare.runs import Layout


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add = parser.add_argument
    add(
        "dump", type=Path, metavar="DUMP", help="dump.json, or a folder of steps and ranks, recorded at level L0 or mix"
    )
    add("--golden", type=Path, metavar="DUMP", help="golden run to compare with, as in pytest --msprobe-compare")
    add("--html", type=Path, metavar="FILE", help="write one HTML page to this file")
    add(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="write the files of msprobe's TensorBoard viewer to this folder (default: graphs, or none with --html)",
    )
    add(
        "--format",
        choices=("db", "json"),
        default="db",
        help="format of the viewer's files: .vis.db, one file, or .vis (default: %(default)s)",
    )
    add("--complete-stack", action="store_true", help="show the whole call stack of each node (default: one line)")
    add("--overflow", action="store_true", help="also colour nodes by inf and nan")
    add(
        "--overflow-ignore",
        type=Path,
        metavar="FILE",
        help="with --overflow, YAML file with rules for harmless inf and nan, in addition to the built-in rules",
    )
    add("--fuzzy", action="store_true", help="match calls by API and structure, and ignore their numbers")
    add(
        "--mapping",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="YAML file of names in the golden run, as for pytest --msprobe-mapping (repeatable)",
    )
    add(
        "--transform",
        type=Path,
        metavar="FILE",
        help="YAML file of transformations, as for pytest --msprobe-transform",
    )
    add(
        "--layout",
        metavar="LAYOUT",
        help="parallel layout, whose ranks are merged into one model: tp=2,cp=2,ep=2,pp=2[,vpp=2][,order=...] or a "
        "YAML file",
    )
    add("--golden-layout", metavar="LAYOUT", help="parallel layout of the golden run")
    add(
        "--policy",
        default="default",
        metavar="NAME|FILE",
        help="policy that judges the differences (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the files, print where they are, and return 0. Raises a UserError or DumpError."""
    _require_sense(arguments)
    from pytest_msprobe.modes.compare.runs import runs_of

    paths = runs_of(arguments.dump, _layout(arguments, "layout"))
    is_alone = arguments.golden is None
    if arguments.html is not None:
        from pytest_msprobe.storage.files import atomic_write

        with _written(arguments.html):
            arguments.html.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(arguments.html) as part:
                (_single_page if is_alone else _compared_page)(arguments, paths, part)
        print(printable(f"{arguments.html}"))
    folder = arguments.output or (None if arguments.html else Path("graphs"))
    if folder is not None:
        with _written(folder):
            written = (_single if is_alone else _compared)(arguments, paths, folder)
        for path in written:
            print(printable(f"{path}"))
        print(printable(f"to view them: tensorboard --logdir {folder}"))
    return 0


def _require_sense(arguments: argparse.Namespace) -> None:
    if not arguments.dump.exists():
        raise CommandError("no such file or directory", file=arguments.dump)
    named = [(name, getattr(arguments, name)) for name in ("golden", "transform", "overflow_ignore")]
    for name, path in [*named, *(("mapping", path) for path in arguments.mapping)]:
        if path is not None and not path.exists():
            raise CommandError(f"--{name.replace('_', '-')} {str(path)!r}: no such file or directory")
    if arguments.golden is None:
        for name in ("fuzzy", "mapping", "transform", "golden_layout"):
            if getattr(arguments, name):
                raise no_effect(f"--{name.replace('_', '-')}", "--golden DUMP")
    if arguments.overflow_ignore is not None:
        if not arguments.overflow:
            raise no_effect("--overflow-ignore", "--overflow")
        if arguments.golden is not None:
            raise CommandError("--overflow-ignore does not work with --golden; remove one of them")


@contextmanager
def _written(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CommandError(f"graphs cannot be written: {error.strerror or error}", file=path) from None


def _layout(arguments: argparse.Namespace, name: str) -> Layout | None:
    from pytest_msprobe.modes.compare.registry import ComparisonRegistry

    text = getattr(arguments, name)
    return ComparisonRegistry().parse_layout(f"--{name.replace('_', '-')}", text, Path()) if text else None


def _open(arguments: argparse.Namespace, path: Path) -> Dump:
    """Open a run that is not compared."""
    from pytest_msprobe.modes.compare.runs import open_run

    layout = _layout(arguments, "layout")
    return open_run(path, None) if layout is None else layout.open_alone(path)


def _single(arguments: argparse.Namespace, paths: list[Path], folder: Path) -> list[Path]:
    from msprobe_hooks.dump.recording_paths import by_stage

    return [
        path
        for stage, of_stage in by_stage(paths).items()
        for path in _single_stage(arguments, of_stage, folder / stage)
    ]


def _single_stage(arguments: argparse.Namespace, paths: list[Path], folder: Path) -> list[Path]:
    from pytest_msprobe.extensions.graphs.graph_folder import draw_single, open_graphs, places_of, require_free
    from pytest_msprobe.extensions.graphs.vis_database import Manner
    from pytest_msprobe.extensions.overflow.ignore_rules import load_rules

    require_free(folder)
    places = places_of(paths)
    rules = load_rules(arguments.overflow_ignore)
    manner = Manner(overflow=arguments.overflow, all_frames=arguments.complete_stack)
    with open_graphs(folder, manner, arguments.format) as (database, written):
        # One after the other, so that memory is that of one rank.
        draw_single(database, map(partial(_open, arguments), paths), places, rules)
    return written


def _compared(arguments: argparse.Namespace, paths: list[Path], folder: Path) -> list[Path]:
    from pytest_msprobe.extensions.graphs.compared_graphs import write_graphs
    from pytest_msprobe.extensions.graphs.graph_folder import VisOptions, require_free

    require_free(folder)
    vis = VisOptions(folder, arguments.format, arguments.complete_stack)
    return write_graphs(paths, *_comparison(arguments), vis, overflow=arguments.overflow)


def _comparison(arguments: argparse.Namespace) -> tuple[CompareOptions, ComparePolicy]:
    from pytest_msprobe.modes.compare.judging.policy import load_policy
    from pytest_msprobe.modes.compare.options import CompareOptions, with_mappings
    from pytest_msprobe.modes.compare.registry import ComparisonRegistry

    try:
        policy = load_policy(arguments.policy)
    except ValueError as error:
        raise CommandError(f"--policy: {error}") from None
    options = CompareOptions(
        golden=arguments.golden,
        fuzzy=arguments.fuzzy,
        html=arguments.html,
        parts=ComparisonRegistry().parts(
            transform=arguments.transform,
            target_layout=_layout(arguments, "layout"),
            golden_layout=_layout(arguments, "golden_layout"),
        ),
    )
    return with_mappings(options, arguments.mapping), policy


def _single_page(arguments: argparse.Namespace, paths: list[Path], part: Path) -> None:
    from pytest_msprobe.extensions.graphs.graph_page import write_single_page
    from pytest_msprobe.extensions.graphs.nodes import require_modules

    runs = [_open(arguments, path) for path in paths]
    require_modules(runs)
    write_single_page(part, runs, title=str(arguments.dump))


def _compared_page(arguments: argparse.Namespace, paths: list[Path], part: Path) -> None:
    from pytest_msprobe.extensions.graphs.graph_page import read_graphs
    from pytest_msprobe.extensions.graphs.nodes import require_modules
    from pytest_msprobe.modes.compare.opening import open_pairs, require_pairs
    from pytest_msprobe.modes.compare.registry import ComparisonRegistry
    from pytest_msprobe.modes.compare.reporting import write_page_of
    from pytest_msprobe.modes.compare.runs import open_run
    from pytest_msprobe.run.header import empty_line

    layout = _layout(arguments, "layout")
    dumps = {path: open_run(path, layout) for path in paths}
    options, policy = _comparison(arguments)
    opened = open_pairs(dumps, options, policy)
    empty = [path for path in dumps if path not in opened]
    pairs = [*opened.values()]
    require_pairs(pairs, empty)
    if empty:
        print(printable(empty_line(empty, "not compared")))
    require_modules([*(dumps[path] for path in opened), *(pair.golden for pair in pairs)])
    graphs, count = read_graphs(pairs, are_required=True), sum(len(pair.orders) for pair in pairs)
    write_page_of(part, pairs, _calls(pairs), count, policy.name, graphs, ComparisonRegistry().fed_layers)


def _calls(pairs: Sequence[DumpPair]) -> Iterator[ComparedCall]:
    for pair in pairs:
        for name in pair.orders:
            # A malformed record has no colour.
            with suppress(RecordError):
                yield pair.compare(name)
