"""Where MindSpore dumps a static graph: ``rank_<N>/<net>/<graph>/<iteration>/`` holds a file for each tensor.

Older backends write ``<time>/<device>/<net>/<graph>/<iteration>/``. An iteration is in several folders where the
process ran several graphs; it goes by one of the files of the first.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from msprobe_hooks.dump.paths.converted import is_converted_file

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
    found = (min(files, key=lambda file: _graph_order(file.parent)) for files in iterations.values())
    return sorted(found, key=lambda file: (rank_of_file(file) or 0, iteration_of(file), file))


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
