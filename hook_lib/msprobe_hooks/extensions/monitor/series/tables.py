"""Tables of series, whatever the format of their files: CSV, TensorBoard events, statistics of a recording."""

from __future__ import annotations

import math
import re
from collections import defaultdict, deque
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.dump.names import is_module_name, is_parameters_grad
from msprobe_hooks.dump.reader import Dump, read_dump
from msprobe_hooks.dump.recording_paths import DUMP_FILE, STEP, numbers_by_value, rank_in_recording, step_rank
from msprobe_hooks.dump.values import PlacedValue, read_values
from msprobe_hooks.errors import DumpError, MonitorError, RecordError
from msprobe_hooks.extensions.monitor.series.paths import RECORDED_TASKS, make_folder, rank_of, tag
from msprobe_hooks.messages import counted

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


_FORWARD, _RECOMPUTE, _BACKWARD, _PARAMETERS_GRAD = RECORDED_TASKS
_MODULE = re.compile(r"(.+)\.(?:forward|backward)\.([0-9]+)")
_API = re.compile(r"(.+)\.(?:forward|backward)")
_GRADIENTS = re.compile(r"(.+)\.parameters_grad(?:\.([0-9]+))?")
_FLOATS = ("float", "Float", "bfloat", "BFloat")
#: The statistics in the order of a table; a dump has them as max, min, mean and norm.
_STATISTICS: Final = ("norm", "max", "min", "mean")
_PLACES: Final = (3, 0, 1, 2)

#: The bins of a distribution and their range, msprobe's; elements beyond it are in none.
BINS: Final = 30
RANGE: Final = (-1.0, 1.0)

# So many of the latest steps are shown, which bounds memory and the size of events.
_STEPS_SHOWN = 256
_HEIGHT_OF_BIN = 8
_WIDTH = 512
_WIDEST_STEP = 16

# matplotlib's colours "hot": red, green and blue rise from 0 to 1 one after the other, red from 0.0416 at 0.
_ENDS = np.array([0.0, 0.365079, 0.746032, 1.0])
_LEAST_RED = 0.0416


class Row(msgspec.Struct, frozen=True, gc=False):
    """The statistics of one tensor at one step.

    ``task`` is one of `layout.TASKS` or another word, ``name`` is ``<module>.input``, ``<module>.output`` or a
    parameter's name, and ``values`` are in the order of the writer's statistics. ``distribution`` is how many elements
    are in each of the bins of `heat_maps`, of what a picture is made in events.
    """

    task: str
    vpp_stage: int
    name: str
    step: int
    micro_step: int | None
    values: tuple[float, ...]
    distribution: tuple[float, ...] = ()

    @property
    def watched(self) -> Watched:
        """Return what the statistics are of."""
        return Watched(self.task, self.vpp_stage, self.name, self.micro_step)


class Watched(NamedTuple):
    """Watched object, apart from its statistics: a tensor of a module's call, or of a parameter."""

    task: str
    vpp_stage: int
    name: str
    micro_step: int | None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows in the order in which they were written.

    ``watched`` are the tensors in the order of their first row, ``owners`` the index into them of each row, int32 of
    shape (rows,), ``steps`` int64 of shape (rows,), and ``values`` float64 of shape (statistics, rows), or (0, rows)
    where only the rest was asked for. ``groups`` are the first rows of the groups in which a file can be read.
    """

    watched: Sequence[Watched]
    owners: NDArray[np.int32]
    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    groups: NDArray[np.int64]


class CutFileError(MonitorError):
    """A file ends before it can be read; the text is a sentence of a run's notes."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path.name}: {problem} and is left out")


class Part(Protocol):
    """One file of series."""

    @property
    def path(self) -> Path:
        """The file."""

    @property
    def written(self) -> int:
        """Return when it was written, in nanoseconds since the epoch."""

    @property
    def statistics(self) -> Sequence[str]:
        """Return what the rows of a table's values are."""

    @property
    def notes(self) -> Sequence[str]:
        """Return what of the file was left out, in sentences, once it was read."""

    def index(self) -> Table:
        """Return all rows without their values."""

    def read(self, tensors: Container[Watched], groups: Sequence[int]) -> Table:
        """Return the rows of the wanted tensors with their values, looking only into these groups of rows."""


def open_summary(folder: Path) -> SummaryWriter:
    """Return what writes events into a folder, which is made where it is not there.

    Raises MonitorError where that cannot be done, or torch or tensorboard are not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MonitorError(
            "TensorBoard events need torch and tensorboard; pip install pytest-msprobe[torch,tensorboard], or choose "
            "the format csv"
        ) from None
    make_folder(folder)
    return SummaryWriter(folder)


class EventWriter:
    """Writes scalars named ``<vpp stage>:<name>[:<micro step>]/rank<rank>/<task>_<statistic>``.

    What comes with a distribution has a heat map of it over the steps too, named without a statistic.
    """

    def __init__(self, folder: Path, statistics: Sequence[str]) -> None:
        """Make the folder. Raises MonitorError where that cannot be done, or tensorboard is not installed."""
        self._summary = open_summary(folder)
        self._statistics = tuple(statistics)
        self._rank = rank_of(folder) or 0
        self._maps: defaultdict[str, _HeatMap] = defaultdict(_HeatMap)
        self._changed: dict[str, int] = {}

    def add(self, rows: Iterable[Row]) -> None:
        """Write rows, which are on disk after a flush."""
        for row in rows:
            name = tag(row.vpp_stage, row.name, row.micro_step, self._rank, row.task)
            for statistic, value in zip(self._statistics, row.values, strict=True):
                self._summary.add_scalar(f"{name}_{statistic}", value, row.step)
            if row.distribution:
                self._maps[name].add(row.distribution)
                self._changed[name] = row.step

    def flush(self) -> None:
        """Write what was added to disk."""
        changed, self._changed = self._changed, {}
        for name, step in changed.items():
            self._summary.add_image(name, self._maps[name].image(), step, dataformats="HWC")
        self._summary.flush()

    def close(self) -> None:
        """Flush, and close the file."""
        self.flush()
        self._summary.close()


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

    def read(self, tensors: Container[Watched], groups: Sequence[int]) -> Table:
        """Return the rows of the wanted tensors with their values."""
        table = self.index()
        places = [place for place, watched in enumerate(table.watched) if watched in tensors]
        return Table(
            [table.watched[place] for place in places],
            np.arange(len(places), dtype=np.int32),
            table.steps[places],
            table.values[:, places],
            np.zeros(min(1, len(places)), np.int64),
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
        match = _GRADIENTS.fullmatch(record)
        return (_PARAMETERS_GRAD, match[1], int(match[2]) if match[2] else 0) if match else None
    is_module = is_module_name(record)
    match = (_MODULE if is_module else _API).fullmatch(record)
    if match is None:
        return None
    is_backward = record[match.end(1) :].startswith(".backward")
    task = _BACKWARD if is_backward else _RECOMPUTE if dump.is_recomputed(record) else _FORWARD
    return task, match[1], int(match[2]) if is_module else None


class _HeatMap:
    """A column for each step, a row for each bin, the lowest on top.

    Empty bins are black, each step's fullest is white: Adam's first step, with all elements in two bins, would else
    leave the others dark.
    """

    def __init__(self) -> None:
        self._columns: deque[NDArray[np.float32]] = deque(maxlen=_STEPS_SHOWN)

    def add(self, counts: Sequence[float]) -> None:
        """Take the next step: how many elements are in each of the `BINS`."""
        self._columns.append(np.asarray(counts, np.float32))

    def image(self) -> NDArray[np.uint8]:
        """Return the picture, of shape (height, width, 3)."""
        counts = np.stack(self._columns, axis=1)
        shares = counts / np.maximum(counts.max(axis=0), 1.0)
        ramps = np.clip((shares[..., None] - _ENDS[:-1]) / np.diff(_ENDS), 0, 1)
        ramps[..., 0] = _LEAST_RED + (1 - _LEAST_RED) * ramps[..., 0]
        pixels: NDArray[np.uint8] = np.rint(255 * ramps).astype(np.uint8)
        width = min(max(_WIDTH // counts.shape[1], 1), _WIDEST_STEP)
        return pixels.repeat(_HEIGHT_OF_BIN, axis=0).repeat(width, axis=1)


def dumps_by_rank(folder: Path) -> dict[int, dict[int, list[Path]]]:
    """Return every ``dump.json`` of the recording in a folder, by rank and step, both ascending.

    A rank has several of one step where several processes wrote into the recording without a rank.
    """
    dumps: dict[int, dict[int, list[Path]]] = {}
    for path in sorted(folder.glob(f"step*/*/{DUMP_FILE}"), key=numbers_by_value):
        step, rank = STEP.fullmatch(path.parent.parent.name), rank_in_recording(path.parent)
        if step is not None and rank is not None and path.is_file():
            dumps.setdefault(rank, {}).setdefault(int(step[1]), []).append(path)
    return dict(sorted(dumps.items()))
