"""Series from a recording: the statistics in the ``dump.json`` of each step, as if they had been watched.

Tasks and names are those that msprobe's ``data2db`` gives them: ``forward``, ``recompute`` and ``backward`` hold
``Module.layers.0.Linear.input.0`` with the number of the module's call as micro step, ``parameters_grad`` holds
``Module.layers.0.Linear.weight``. A call of an API keeps its number in its name, ``Functional.linear.3.output.0``,
because it is another call of the model and not another micro batch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from msprobe_hooks.dump.names import is_module_name, is_parameters_grad
from msprobe_hooks.dump.paths.recording import DUMP_FILE, dumps_by_rank, rank_in_recording, step_rank
from msprobe_hooks.dump.reader import Dump, read_dump
from msprobe_hooks.dump.values import PlacedValue, read_values
from msprobe_hooks.errors import DumpError, MonitorError, RecordError
from msprobe_hooks.extensions.monitor.series.paths import RECORDED_TASKS
from msprobe_hooks.extensions.monitor.series.tables import Table, Watched
from msprobe_hooks.messages import counted

_FORWARD, _RECOMPUTE, _BACKWARD, _PARAMETERS_GRAD = RECORDED_TASKS
_MODULE = re.compile(r"(.+)\.(?:forward|backward)\.([0-9]+)")
_API = re.compile(r"(.+)\.(?:forward|backward)")
_GRADIENTS = re.compile(r"(.+)\.parameters_grad(?:\.([0-9]+))?")
_FLOATS = ("float", "Float", "bfloat", "BFloat")
#: The statistics in the order of a table; a dump has them as max, min, mean and norm.
_STATISTICS: Final = ("norm", "max", "min", "mean")
_PLACES: Final = (3, 0, 1, 2)


def is_recorded_folder(folder: Path) -> bool:
    """Return whether a folder holds what a recording wrote of one rank at one step."""
    return (folder / DUMP_FILE).is_file()


def recorded_ranks(folder: Path) -> list[Path]:
    """Return for each rank of a recording the folder of its first step, in the order of ranks; none for others."""
    return [next(iter(steps.values()))[0].parent for steps in dumps_by_rank(folder).values()]


def recorded_steps(folder: Path) -> list[Path]:
    """Return the ``dump.json`` of each step of the rank that a folder is of, in the order of steps.

    Raises MonitorError where several processes wrote a step of that rank.
    """
    own, rank = folder / DUMP_FILE, rank_in_recording(folder)
    steps = {} if rank is None else dumps_by_rank(folder.absolute().parent.parent).get(rank, {})
    if not steps:
        return [own]
    for paths in steps.values():
        if len(paths) > 1:
            names = " and ".join(path.parent.name for path in paths[:2])
            raise MonitorError(
                f"{paths[0].parent.parent}: {names} are both of rank {rank}; rename the folders of processes to rank<N>"
            )
    return [path for (path,) in steps.values()]


class RecordedPart:
    """One ``dump.json``: the tensors of floating point that it has statistics of, at one step."""

    statistics: Sequence[str] = _STATISTICS

    def __init__(self, path: Path, names: dict[Watched, Watched]) -> None:
        """Take the file; ``names`` is shared by the steps of a run, most of which have the same tensors."""
        self.path = path
        self.written = path.stat().st_mtime_ns
        self.notes: list[str] = []
        self._names = names
        self._table: Table | None = None

    def index(self) -> Table:
        """Return all rows, which are read here. Raises MonitorError for a dump that has no statistics."""
        if self._table is None:
            self._table = self._read()
        return self._table

    def read(self, wanted: Container[Watched], groups: Sequence[int]) -> Table:
        """Return the rows of the wanted tensors with their values."""
        table = self.index()
        kept = [place for place, watched in enumerate(table.watched) if watched in wanted]
        return Table(
            [table.watched[place] for place in kept],
            np.arange(len(kept), dtype=np.int32),
            table.steps[kept],
            table.values[:, kept],
            np.zeros(min(1, len(kept)), np.int64),
        )

    def _read(self) -> Table:
        dump = self._dump()
        rows: dict[Watched, tuple[float, ...]] = {}
        lacking = 0
        for record in dump.records:
            for watched, value in self._values(dump, record):
                statistics = value.value.statistics
                if statistics is None or all(number is None for number in statistics):
                    lacking += 1
                    continue
                numbers = [math.nan if number is None else float(number) for number in statistics]
                rows[self._names.setdefault(watched, watched)] = tuple(numbers[place] for place in _PLACES)
        if not rows:
            raise MonitorError(
                f"{self.path}: holds no statistics of a floating-point tensor (task {dump.task}, level {dump.level}); "
                "record with the task statistics or tensor"
            )
        if lacking:
            self.notes.append(f"{self._name}: {counted(lacking, 'tensor')} without statistics left out")
        return Table(
            [*rows],
            np.arange(len(rows), dtype=np.int32),
            np.full(len(rows), step_rank(self.path).step or 0, np.int64),
            np.array([*rows.values()], np.float64).T.copy(),
            np.zeros(1, np.int64),
        )

    def _dump(self) -> Dump:
        try:
            return read_dump(self.path)
        except DumpError as error:
            raise MonitorError(str(error)) from None

    def _values(self, dump: Dump, record: str) -> Iterator[tuple[Watched, PlacedValue]]:
        """Yield the tensors of floating point of a record, each with what it is called."""
        named = _named(dump, record)
        if named is None:
            return
        task, owner, micro_step = named
        try:
            values = read_values(dump, record)
        except RecordError as error:
            self.notes.append(f"{self._name}: {record} is left out: {error}")
            return
        for value in values:
            if value.value.dtype.removeprefix("torch.").startswith(_FLOATS):
                yield Watched(task, 0, f"{owner}.{value.place}", micro_step), value

    @property
    def _name(self) -> str:
        return "/".join(self.path.parts[-3:])


def _named(dump: Dump, record: str) -> tuple[str, str, int | None] | None:
    """Return the task of a record's tensors, what their names begin with and their micro step; None for others."""
    if is_parameters_grad(record):
        found = _GRADIENTS.fullmatch(record)
        return (_PARAMETERS_GRAD, found[1], int(found[2]) if found[2] else 0) if found else None
    is_module = is_module_name(record)
    found = (_MODULE if is_module else _API).fullmatch(record)
    if found is None:
        return None
    is_backward = record[found.end(1) :].startswith(".backward")
    task = _BACKWARD if is_backward else _RECOMPUTE if dump.is_recomputed(record) else _FORWARD
    return task, found[1], int(found[2]) if is_module else None
