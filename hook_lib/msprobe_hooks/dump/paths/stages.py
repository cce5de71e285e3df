"""Stages of a training step: recordings of parts of a step, each in a folder of its own.

veRL writes ``step_1/actor_update/step0/rank0/dump.json``; programs that set a debugger's ``dump_path`` before each
stage write ``actor_update/step0/rank0/dump.json``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path

from msprobe_hooks.dump.paths.recording import DEBUG_FILE, DUMP_FILE, step_rank

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
    found: dict[str, list[Path]] = {}
    for path, stage in stages_of(paths).items():
        found.setdefault(stage, []).append(path)
    return found


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
