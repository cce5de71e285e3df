"""Paths of a recording: ``step<N>/rank<N>/dump.json`` with its neighbours, in msprobe's layout, and stages of a step.

A program that is not distributed writes ``rank`` without a number; msprobe, ``proc<pid>``, which does not name a rank.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from msprobe_hooks.dump.paths.static_graph import (
    find_iterations,
    find_trees,
    has_graphs,
    is_converted_file,
    is_iteration_file,
    iteration_of,
    rank_of_file,
    tree_of,
)
from msprobe_hooks.errors import DumpError

DUMP_FILE: Final = "dump.json"
DEBUG_FILE: Final = "debug.json"
STACK_FILE: Final = "stack.json"
CONSTRUCT_FILE: Final = "construct.json"
TENSOR_FOLDER: Final = "dump_tensor_data"

_STEP, _RANK = re.compile(r"step([0-9]+)"), re.compile(r"rank([0-9]*)")
_PROCESS = re.compile(r"proc[0-9]+")


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
        return StepRank(iteration_of(path), rank_of_file(path))
    return StepRank(_nearest(_STEP, path), _nearest(_RANK, path))


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


def dumps_by_rank(folder: Path) -> dict[int, dict[int, list[Path]]]:
    """Return every ``dump.json`` of the recording in a folder, by rank and step, both ascending.

    A rank has several of one step where several processes wrote into the recording without a rank.
    """
    dumps: dict[int, dict[int, list[Path]]] = {}
    for path in sorted(folder.glob(f"step*/*/{DUMP_FILE}"), key=_numbers_by_value):
        step, rank = _STEP.fullmatch(path.parent.parent.name), rank_in_recording(path.parent)
        if step is not None and rank is not None and path.is_file():
            dumps.setdefault(rank, {}).setdefault(int(step[1]), []).append(path)
    return dict(sorted(dumps.items()))


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
    dumps = _named(DUMP_FILE, folders) or _named(DEBUG_FILE, folders) or find_trees(folders) or find_iterations(folders)
    if not dumps and has_graphs(folder):
        raise DumpError(
            f"{folder}: no kernel's tensor in the graphs of MindSpore; the run ended before the first; dump it again"
        )
    if not dumps:
        raise DumpError(f"{folder}: no dump.json in this folder or below it; pass the folder that a recording wrote")
    return dumps


def _named(name: str, folders: Iterable[tuple[str, list[str], list[str]]]) -> list[Path]:
    return sorted((Path(place, name) for place, _, names in folders if name in names), key=_numbers_by_value)


def home_of(path: Path) -> Path:
    """Return what a user calls a dump: kernels of an iteration or of a tree are a folder, any other dump its file."""
    if is_converted_file(path):
        return tree_of(path)
    return path.parent if is_iteration_file(path) else path


def dump_at(home: Path, dumps: Collection[Path]) -> Path:
    """Return which of some dumps goes by a path, its own or what `home_of` says of it; the path where none does."""
    return home if home in dumps else next((dump for dump in dumps if home_of(dump) == home), home)


def _numbers_by_value(path: Path) -> list[tuple[int, str]]:
    return [(int(piece), "") if piece.isdigit() else (-1, piece) for piece in re.split(r"([0-9]+)", path.as_posix())]


_STEP_OF_TRAINING = re.compile(r"step_[0-9]+")
_RANK_OF_TRAINING = re.compile(r"rank_[0-9]+")
_OF_RECORDING = re.compile(r"step[0-9]+|rank[0-9]*|proc[0-9]+")


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
    while _OF_RECORDING.fullmatch(folder.name):
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
