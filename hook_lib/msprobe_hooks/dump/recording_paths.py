"""Paths of a recording in msprobe's layout, ``step<N>/rank<N>/dump.json``, and of a static graph's dump.

A program that is not distributed writes ``rank`` without a number; msprobe, ``proc<pid>``, which does not name a rank.

A static graph is dumped to ``rank_<N>/<net>/<graph>/<iteration>/`` with a file per tensor, and to converted files;
older backends write ``<time>/<device>/<net>/<graph>/<iteration>/``. An iteration is in several folders where
the process ran several graphs; it goes by one of the files of the first.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from msprobe_hooks.errors import DumpError
from msprobe_hooks.regular_files import read_regular

DUMP_FILE: Final = "dump.json"
DEBUG_FILE: Final = "debug.json"
STACK_FILE: Final = "stack.json"
CONSTRUCT_FILE: Final = "construct.json"
TENSOR_FOLDER: Final = "dump_tensor_data"

STEP, _RANK = re.compile(r"step([0-9]+)"), re.compile(r"rank([0-9]*)")
_PROCESS = re.compile(r"proc[0-9]+")

_STEP_OF_TRAINING = re.compile(r"step_[0-9]+")
_RANK_OF_TRAINING = re.compile(r"rank_[0-9]+")
OF_RECORDING: Final = re.compile(r"step[0-9]+|rank[0-9]*|proc[0-9]+")

NAME_IN_WORDS: Final = "Type.Op.task.stream.time.input.index.npy"
SUFFIX: Final = ".npy"

#: The name of a converted file; MindSpore's own have a format's name behind the index, which begins with a letter.
KERNEL_FILE = re.compile(
    r"([^./]+)\.([^/]+?)\.(\d+)(?:\.(\d+))?\.(\d+)((?:\.\d+){3,4})?\.(input|output)\.(\d+)(?:\.\d[\dx]*)?\.npy",
    re.ASCII,
)

#: The level of a dump whose records are kernels.
KERNEL_LEVEL: Final = "L2"

STATISTIC_FILE: Final = "statistic.csv"
MAPPING_FILE: Final = "mapping.csv"
TENSOR_SUFFIX: Final = ".npy"

_GRAPH_RANK = re.compile(r"rank_([0-9]+)")


class StepRank(NamedTuple):
    """The numbers of step and rank in the names of the folders around a dump; None where there is none."""

    step: int | None = None
    rank: int | None = None

    def __str__(self) -> str:
        words = [f"{name} {number}" for name, number in zip(("step", "rank"), self, strict=True) if number is not None]
        return " and ".join(words) or "no numbered step or rank"


def recording_folder(step: int, rank: int | None) -> Path:
    """Return the folder of one step and rank, below that of a recording; rank None where there is only one process."""
    return Path(f"step{step}", "rank" if rank is None else f"rank{rank}")


def step_rank(path: Path) -> StepRank:
    """Return the numbers of the nearest folders named ``step<N>`` and ``rank<N>``; an iteration is a step.

    Args:
        path: The path of a dump.

    Returns:
        The numbers, None for each that no folder has.
    """
    if is_iteration_file(path):
        return StepRank(_iteration_of(path), _rank_of_file(path))
    return StepRank(_nearest(STEP, path), _nearest(_RANK, path))


def _nearest(pattern: re.Pattern[str], path: Path) -> int | None:
    numbers = (match[1] for part in reversed(path.parts) if (match := pattern.fullmatch(part)))
    return next((int(number) for number in numbers if number), None)


def rank_of(folder: Path) -> int | None:
    """Return the rank in a folder's own name, 0 for ``rank``; None for any other name."""
    named = _RANK.fullmatch(folder.name)
    return int(named[1] or 0) if named else None


def rank_in_recording(folder: Path) -> int | None:
    """Return the rank that a folder of a recording is read as: that in its name, 0 for a process without one."""
    return 0 if _PROCESS.fullmatch(folder.name) else rank_of(folder)


def find_dumps(folder: Path) -> list[Path]:
    """Return every ``dump.json`` below a folder, steps and ranks in the order of their numbers.

    A recording of saved variables alone has ``debug.json`` in its place, a static graph a file of each iteration, a
    tree of converted kernel files the first of these.

    Args:
        folder: The folder of a recording, or any folder above it.

    Returns:
        The paths, at least one.

    Raises:
        DumpError: There are no such files.
    """
    # A tree has as many folders as kernels: it is gone through once.
    folders = [*os.walk(folder)]
    dumps = (
        _named(DUMP_FILE, folders) or _named(DEBUG_FILE, folders) or _find_trees(folders) or find_iterations(folders)
    )
    if not dumps and _has_graphs(folder):
        raise DumpError(
            f"{folder}: no kernel's tensor in the graphs of MindSpore; the run ended before the first; dump it again"
        )
    if not dumps:
        raise DumpError(f"{folder}: no dump.json in this folder or below it; pass the folder that a recording wrote")
    return dumps


def _named(name: str, folders: Iterable[tuple[str, list[str], list[str]]]) -> list[Path]:
    return sorted((Path(place, name) for place, _, names in folders if name in names), key=numbers_by_value)


def home_of(path: Path) -> Path:
    """Return what a user calls a dump: kernels of an iteration or of a tree are a folder, any other dump its file."""
    if is_converted_file(path):
        return tree_of(path)
    return path.parent if is_iteration_file(path) else path


def dump_at(home: Path, dumps: Collection[Path]) -> Path:
    """Return which of some dumps goes by a path, its own or what `home_of` says of it; the path where none does."""
    return home if home in dumps else next((dump for dump in dumps if home_of(dump) == home), home)


def numbers_by_value(path: Path) -> list[tuple[int, str]]:
    """Return a key by which paths are ordered with the numbers in them by their values."""
    return [(int(piece), "") if piece.isdigit() else (-1, piece) for piece in re.split(r"([0-9]+)", path.as_posix())]


def stages_of(paths: Collection[Path]) -> dict[Path, str]:
    """Return the stage of each dump, as in ``step_1/actor_update``; empty for a recording that has none.

    A stage is named from the training's step on, which is a folder ``step_<N>``. Where there is no such folder, dumps
    have stages only if several are of one step and rank; they are named below the folder that all share.
    """
    numbers = [step_rank(path) for path in paths]
    is_split = len({*numbers}) < len(numbers)
    folders = {path: _folder_of_stage(path) for path in paths}
    shared = os.path.commonpath(folders.values()) if is_split else None
    return {path: _stage(path, folder, shared) for path, folder in folders.items()}


def by_stage(paths: Collection[Path]) -> dict[str, list[Path]]:
    """Return the dumps of each stage, in their order."""
    stages: dict[str, list[Path]] = {}
    for path, stage in stages_of(paths).items():
        stages.setdefault(stage, []).append(path)
    return stages


def folder_of_run(folder: Path) -> Path:
    """Return the folder above the training's step that a folder is of; the folder itself where there is none."""
    first = _training_step(folder)
    return folder if first is None else Path(*folder.parts[:first])


def _training_step(folder: Path) -> int | None:
    """Return the place of the innermost folder ``step_<N>`` of a path."""
    places = (i for i in range(len(folder.parts))[::-1] if _STEP_OF_TRAINING.fullmatch(folder.parts[i]))
    return next(places, None)


def _folder_of_stage(path: Path) -> Path:
    """Return the folder around those of step and rank."""
    folder = path.parent
    while OF_RECORDING.fullmatch(folder.name):
        folder = folder.parent
    return folder


def _stage(path: Path, folder: Path, shared: str | None) -> str:
    if path.name not in (DUMP_FILE, DEBUG_FILE):
        return ""
    first = _training_step(folder)
    if first is None and shared is None:
        return ""
    names = folder.parts[first:] if first is not None else folder.relative_to(shared or "").parts
    # A process that knows its rank writes it into its own folder, too.
    is_known = step_rank(path).rank is not None
    return "/".join(name for name in names if not (is_known and _RANK_OF_TRAINING.fullmatch(name)))


def full_names(mapping: Path) -> dict[str, str]:
    """Return the names that were too long by those that replace them. Raises OSError where the file is missing."""
    lines = read_regular(mapping).decode("utf-8", "replace").splitlines()
    return {short: name.strip() for short, _, name in (line.partition(",") for line in lines)}


def is_converted_file(path: Path) -> bool:
    """Return by its name whether a file is a converted one."""
    return KERNEL_FILE.fullmatch(path.name) is not None


def tree_of(path: Path) -> Path:
    """Return the folder of all files that a converted file belongs to."""
    return Path(_tree(str(path.parent), path.name))


def _tree(folder: str, name: str) -> str:
    # Of strings: a tree may have as many folders as executions.
    named = KERNEL_FILE.fullmatch(name)
    sorted_by_op = named is not None and folder.endswith(f"{os.sep}{named[2]}{os.sep}{named[5]}")
    return os.path.dirname(os.path.dirname(folder)) if sorted_by_op else folder  # noqa: PTH120


def _find_trees(folders: Iterable[tuple[str, list[str], list[str]]]) -> list[Path]:
    """Return the first file of each tree of converted files among folders as `os.walk` yields them."""
    trees: dict[str, Path] = {}
    for place, _, names in sorted(folders):
        first = min(filter(KERNEL_FILE.fullmatch, names), default=None)
        if first is not None and (tree := _tree(place, first)) not in trees:
            trees[tree] = Path(place, first)
    return [trees[tree] for tree in sorted(trees)]


def is_iteration_file(path: Path) -> bool:
    """Return by its name whether a file is one of an iteration's."""
    return _is_number(path.parent.name) and _is_kernels_file(path.name) and not is_converted_file(path)


def _iteration_of(path: Path) -> int:
    """Return the iteration of one of its files."""
    return int(path.parent.name)


def _rank_of_file(path: Path) -> int | None:
    """Return the rank in the names of the folders around an iteration's file, None where there is none."""
    named = (match[1] for part in reversed(path.parts) if (match := _GRAPH_RANK.fullmatch(part)))
    numbers = (part for part in path.parts[-5:-3] if _is_number(part))
    number = next(named, None) or next(numbers, None)
    return None if number is None else int(number)


def net_folder(path: Path) -> Path:
    """Return the folder of all graphs, by a file of an iteration of one of them."""
    return path.parents[2]


def graph_folders(path: Path) -> list[Path]:
    """Return the folders of the iteration that a file is of, one for each graph that ran in it."""
    folders = (graph / path.parent.name for graph in net_folder(path).iterdir())
    return sorted((folder for folder in folders if folder.is_dir()), key=_graph_order)


def find_iterations(folders: Iterable[tuple[str, list[str], list[str]]]) -> list[Path]:
    """Return a file of each iteration, by which it goes, in the order of ranks and iterations.

    ``folders`` are those to look into as `os.walk` yields them.
    That is ``statistic.csv``, or the tensor with the shortest name.
    """
    iterations: dict[tuple[Path, str], list[Path]] = defaultdict(list)
    for place, _, names in folders:
        home = Path(place)
        own = [name for name in names if _is_kernels_file(name)] if _is_number(home.name) else []
        if own:
            iterations[home.parent.parent, home.name].append(home / _first(own))
    dumps = (min(files, key=lambda file: _graph_order(file.parent)) for files in iterations.values())
    return sorted(dumps, key=lambda file: (_rank_of_file(file) or 0, _iteration_of(file), file))


def _has_graphs(folder: Path) -> bool:
    """Return whether MindSpore was about to dump graphs into a folder: their texts come before any tensor."""
    return any(_GRAPH_RANK.fullmatch(place.parent.name) for place in folder.rglob("graphs"))


def _is_kernels_file(name: str) -> bool:
    return name == STATISTIC_FILE or name.endswith(TENSOR_SUFFIX)


def _first(names: Sequence[str]) -> str:
    return min(names, key=lambda name: (name != STATISTIC_FILE, len(name), name))


def _graph_order(folder: Path) -> tuple[int, str]:
    graph = folder.parent.name
    return (int(graph) if _is_number(graph) else -1, graph)


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit()
