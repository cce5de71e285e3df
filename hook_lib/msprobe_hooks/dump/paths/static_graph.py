"""Paths of a static graph's dump: ``rank_<N>/<net>/<graph>/<iteration>/`` with a file per tensor, and converted files.

Older backends write ``<time>/<device>/<net>/<graph>/<iteration>/``. An iteration is in several folders where the
process ran several graphs; it goes by one of the files of the first.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from msprobe_hooks.escaping import id_name
from msprobe_hooks.regular_files import read_regular

NAME_IN_WORDS: Final = "Type.Op.task.stream.time.input.index.npy"
SUFFIX: Final = ".npy"

# MindSpore's own files have a format's name behind the index, which begins with a letter.
_NAME = re.compile(
    r"([^./]+)\.([^/]+?)\.(\d+)(?:\.(\d+))?\.(\d+)((?:\.\d+){3,4})?\.(input|output)\.(\d+)(?:\.\d[\dx]*)?\.npy",
    re.ASCII,
)
_SHORTENED = re.compile(r"[0-9a-f]{32}\.npy", re.ASCII)


class KernelFile(NamedTuple):
    """The parts of a file's name: of which execution, or slice of one, of which kernel, and which of its tensors."""

    type: str
    op: str
    task: int
    stream: int
    time: int
    slice: tuple[int, ...]
    side: str
    slot: int


def parse_name(name: str) -> KernelFile | None:
    """Return the parts of the name of a converted file, None for any other name."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    kind, op, task, stream, time, numbers, side, slot = match.groups()
    slice_ = tuple(map(int, numbers[1:].split("."))) if numbers else ()
    return KernelFile(kind, id_name(op), int(task), int(stream or 0), int(time), slice_, side, int(slot))


def is_shortened(name: str) -> bool:
    """Return whether a file's name replaces one that was too long."""
    return _SHORTENED.fullmatch(name) is not None


def full_names(mapping: Path) -> dict[str, str]:
    """Return the names that were too long by those that replace them. Raises OSError where the file is missing."""
    lines = read_regular(mapping).decode("utf-8", "replace").splitlines()
    return {short: name.strip() for short, _, name in (line.partition(",") for line in lines)}


def is_converted_file(path: Path) -> bool:
    """Return by its name whether a file is a converted one."""
    return _NAME.fullmatch(path.name) is not None


def tree_of(path: Path) -> Path:
    """Return the folder of all files that a converted file belongs to."""
    return Path(_tree(str(path.parent), path.name))


def _tree(folder: str, name: str) -> str:
    # Of strings: a tree may have as many folders as executions.
    named = _NAME.fullmatch(name)
    sorted_by_op = named is not None and folder.endswith(f"{os.sep}{named[2]}{os.sep}{named[5]}")
    return os.path.dirname(os.path.dirname(folder)) if sorted_by_op else folder  # noqa: PTH120


def find_trees(folders: Iterable[tuple[str, list[str], list[str]]]) -> list[Path]:
    """Return the first file of each tree of converted files among folders as `os.walk` yields them."""
    trees: dict[str, Path] = {}
    for place, _, names in sorted(folders):
        first = min(filter(_NAME.fullmatch, names), default=None)
        if first is not None and (tree := _tree(place, first)) not in trees:
            trees[tree] = Path(place, first)
    return [trees[tree] for tree in sorted(trees)]


#: The level of a dump whose records are kernels.
KERNEL_LEVEL: Final = "L2"

STATISTIC_FILE: Final = "statistic.csv"
MAPPING_FILE: Final = "mapping.csv"
TENSOR_SUFFIX: Final = ".npy"

_RANK = re.compile(r"rank_([0-9]+)")


def is_iteration_file(path: Path) -> bool:
    """Return by its name whether a file is one of an iteration's."""
    return _is_number(path.parent.name) and _is_kernels_file(path.name) and not is_converted_file(path)


def iteration_of(path: Path) -> int:
    """Return the iteration of one of its files."""
    return int(path.parent.name)


def rank_of_file(path: Path) -> int | None:
    """Return the rank in the names of the folders around an iteration's file, None where there is none."""
    named = (match[1] for part in reversed(path.parts) if (match := _RANK.fullmatch(part)))
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
    return sorted(dumps, key=lambda file: (rank_of_file(file) or 0, iteration_of(file), file))


def has_graphs(folder: Path) -> bool:
    """Return whether MindSpore was about to dump graphs into a folder: their texts come before any tensor."""
    return any(_RANK.fullmatch(place.parent.name) for place in folder.rglob("graphs"))


def _is_kernels_file(name: str) -> bool:
    return name == STATISTIC_FILE or name.endswith(TENSOR_SUFFIX)


def _first(names: Sequence[str]) -> str:
    return min(names, key=lambda name: (name != STATISTIC_FILE, len(name), name))


def _graph_order(folder: Path) -> tuple[int, str]:
    graph = folder.parent.name
    return (int(graph) if _is_number(graph) else -1, graph)


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit()
