"""A spool folder: complete steps of a training, each moved in whole, for ``pytest-msprobe follow`` to check.

Complete steps lie in ``step<N>/rank<N>`` as those of any recording. Next to them are steps that are being written, what
was dropped, and the file whose presence ends it all. Others may write into the folder, so links in it are not followed.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from msprobe_hooks.dump.paths.recording import DUMP_FILE, StepRank, step_rank
from msprobe_hooks.dump.writer import FILE_MODE, as_json
from msprobe_hooks.json_decoding import read_json_lines

#: Where steps are written, in a folder for each rank.
WRITING_FOLDER: Final = ".recording"
#: While there is such a file, no step is taken in; following ends when it has checked those that are there.
STOP_FILE: Final = "stop"

_DROPPED_FILE = "dropped.jsonl"
_LOCK_FILE = ".lock"
_STEP, _RANK = re.compile(r"step[0-9]+"), re.compile(r"rank[0-9]*")


class Dropped(msgspec.Struct, frozen=True):
    """A step that was not taken in, its size in bytes, and why."""

    step: int
    rank: int | None
    bytes: int
    reason: str


def waiting_steps(folder: Path) -> list[Path]:
    """Return the folders of the complete steps, one for each rank of a step, in the order of their numbers."""
    return sorted((step for step in _complete(folder) if not _is_linked(step)), key=_numbers)


def linked_steps(folder: Path) -> list[Path]:
    """Return what would be complete steps, but is reached through links; these are neither checked nor removed."""
    return sorted((step for step in _complete(folder) if _is_linked(step)), key=_numbers)


def _complete(folder: Path) -> Iterator[Path]:
    return (path.parent for path in folder.glob(f"step*/rank*/{DUMP_FILE}") if _is_step(path.parent))


def _is_linked(step: Path) -> bool:
    return step.is_symlink() or step.parent.is_symlink()


def _is_step(folder: Path) -> bool:
    return _RANK.fullmatch(folder.name) is not None and _STEP.fullmatch(folder.parent.name) is not None


def _numbers(folder: Path) -> tuple[int, int]:
    step, rank = step_rank(folder)
    return step or 0, -1 if rank is None else rank


def size_of(folder: Path) -> int:
    """Return the bytes of all files below a folder; what vanishes meanwhile counts nothing."""
    total = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                total += Path(parent, name).lstat().st_size
    return total


@contextmanager
def moving(folder: Path) -> Iterator[None]:
    """Lock a spool folder, so that one process at a time moves steps into it or out of it."""
    lock = os.open(folder / _LOCK_FILE, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def note_dropped(folder: Path, dropped: Dropped) -> None:
    """Append a line to what was dropped. Raises OSError."""
    file = os.open(folder / _DROPPED_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, FILE_MODE)
    try:
        os.write(file, as_json(dropped) + b"\n")
    finally:
        os.close(file)


def read_dropped(folder: Path) -> tuple[list[Dropped], list[str]]:
    """Return what was dropped, and a sentence for each line that cannot be read."""
    return read_json_lines(folder / _DROPPED_FILE, Dropped)


def step_name(folder: Path) -> str:
    """Return how messages call a step's folder, as ``step 3 of rank 1``."""
    step, rank = step_rank(folder)
    return str(StepRank(step)) if rank is None else f"step {step} of rank {rank}"
