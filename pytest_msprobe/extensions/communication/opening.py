"""The files of a run: the dumps that are named, and those of the other ranks of the same steps."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from msprobe_hooks.dump.communication.jsonl import FILE, find_steps
from msprobe_hooks.dump.paths.recording import DUMP_FILE, rank_of
from msprobe_hooks.dump.reader import ReadDump, read_truncated_dump
from msprobe_hooks.errors import DumpError
from pytest_msprobe.extensions.communication.messages import StepCommunication, read_step

# A recording of these tasks holds some calls, and says nothing of what the others were.
_PARTIAL_TASKS = frozenset({"overflow_check", "free_benchmark", "exception_dump"})
_LEVELS_WITHOUT_CALLS = frozenset({"L0", "L2", "debug"})


@dataclass(frozen=True, slots=True)
class Opened:
    """The steps of a run, and of each dump the step and the rank. ``others`` are dumps that were not named."""

    steps: list[StepCommunication]
    places: Mapping[Path, tuple[StepCommunication, int]]
    others: list[Path]

    def unnamed_files(self) -> list[Path]:
        """Return the files that the verdicts depend on besides the named dumps."""
        lines = (path.parent / FILE for path in self.places)
        return [*self.others, *(path for path in lines if path.is_file())]


def open_steps(named: Mapping[Path, ReadDump]) -> Opened:
    """Read the other ranks of the named dumps' steps and bring their communication together.

    Raises DumpError where no communication was recorded, or not all of it.
    """
    others = {path: read_truncated_dump(path) for path in _siblings(named)}
    dumps = {**named, **others}
    _require_communication(dumps)
    ranks = _ranks_by_run(dumps)
    opened = []
    with _without_collections():
        for step in find_steps(read.dump for read in dumps.values()):
            problems = {rank: dumps[dump.path].problem for rank, dump in step.ranks.items() if dumps[dump.path].problem}
            opened.append(read_step(step, ranks.get(step.folder.parent, frozenset()), problems))
    places = {dump.path: (step, rank) for step in opened for rank, dump in step.step.ranks.items()}
    return Opened(opened, places, list(others))


@contextmanager
def _without_collections() -> Iterator[None]:
    """Make objects that stay: looking for garbage among millions of them takes a quarter of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def _siblings(named: Iterable[Path]) -> Iterator[Path]:
    paths = set(named)
    for folder in sorted({path.parent.parent for path in paths if _is_of_rank(path)}):
        yield from (path for path in sorted(folder.glob(f"rank*/{DUMP_FILE}")) if path not in paths)


def _is_of_rank(path: Path) -> bool:
    return path.name == DUMP_FILE and rank_of(path.parent) is not None


def _ranks_by_run(dumps: Iterable[Path]) -> dict[Path, frozenset[int]]:
    """Return the ranks of the named steps by the folder of the run: who recorded one step is a rank of the others."""
    ranks_of: dict[Path, frozenset[int]] = {}
    for folder in {path.parent.parent for path in dumps if _is_of_rank(path)}:
        ranks = frozenset(rank for path in folder.iterdir() if (rank := rank_of(path)) is not None)
        ranks_of[folder.parent] = ranks_of.get(folder.parent, frozenset()) | ranks
    return ranks_of


def _require_communication(dumps: Mapping[Path, ReadDump]) -> None:
    for path, read in dumps.items():
        if read.dump.task in _PARTIAL_TASKS:
            raise DumpError(
                f"{path}: task {read.dump.task} records some calls only, so that partners are unknown; record with "
                "task statistics or tensor"
            )
        if read.dump.level in _LEVELS_WITHOUT_CALLS:
            raise DumpError(f"{path}: level {read.dump.level} records no communication; record with level L1 or mix")
