"""The series of a monitored run, read one after another, from any of the formats."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.grad_probe.sign_maps import summary_rows
from msprobe_hooks.extensions.monitor.series.blocks import Block, Contents, read_block, read_contents
from msprobe_hooks.extensions.monitor.series.csv_files import CsvPart
from msprobe_hooks.extensions.monitor.series.paths import (
    FileName,
    file_name,
    is_probed_folder,
    is_run_folder,
    is_summary,
    rank_of,
    started,
)
from msprobe_hooks.extensions.monitor.series.tables import (
    CutFileError,
    Part,
    RecordedPart,
    Table,
    Watched,
    is_recorded_folder,
    recorded_ranks,
    recorded_steps,
)
from msprobe_hooks.extensions.monitor.series.writer import ParquetPart
from msprobe_hooks.messages import shown


class SummaryPart:
    """One ``grad_summary_<step>.csv``.

    A probe writes in the order of parameters. Backward passes compute gradients the other way round, so that is the
    order of the table.
    """

    statistics: Sequence[str] = ("norm", "min", "max")
    notes: Sequence[str] = ()

    def __init__(self, path: Path, task: str) -> None:
        self.path = path
        self.written = path.stat().st_mtime_ns
        self._task = task

    def index(self) -> Table:
        """Return all rows without their values. Raises MonitorError for a file that is not a summary."""
        return self._read(None)

    def read(self, wanted: Container[Watched], groups: Sequence[int]) -> Table:
        """Return the rows of the wanted gradients. Raises MonitorError for text that cannot be read, by its row."""
        return self._read(wanted)

    def _read(self, wanted: Container[Watched] | None) -> Table:
        header, *rows = summary_rows(self.path)
        columns = self._columns(header)
        watched: dict[Watched, int] = {}
        owners, values = list[int](), list[list[float]]()
        for row in reversed(rows):
            gradient = Watched(self._task, 0, row[0], None)
            if wanted is None or gradient in wanted:
                owners.append(watched.setdefault(gradient, len(watched)))
                if wanted is not None:
                    values.append(self._numbers(row, columns))
        name = file_name(self.path)
        assert name is not None
        return Table(
            [*watched],
            np.array(owners, np.int32),
            np.full(len(owners), name.first, np.int64),
            np.array(values, np.float64).reshape(-1, len(self.statistics)).T,
            np.zeros(min(1, len(owners)), np.int64),
        )

    def _columns(self, header: Sequence[str]) -> list[int]:
        places = {column: place for place, column in enumerate(header)}
        lacking = [statistic for statistic in self.statistics if statistic not in places]
        if lacking:
            raise MonitorError(f"{self.path}: has no column {lacking[0]}; record it again")
        return [places[statistic] for statistic in self.statistics]

    def _numbers(self, row: Sequence[str], columns: Sequence[int]) -> list[float]:
        try:
            return [float(row[place]) for place in columns]
        except (ValueError, IndexError):
            raise MonitorError(
                f"{self.path}: the row of {shown(row[0])} lacks a number in {', '.join(self.statistics)}; "
                "record it again"
            ) from None


_FORMATS: dict[str, Callable[[Path, str], Part]] = {".csv": CsvPart, ".parquet": ParquetPart}


@dataclass(frozen=True, slots=True, order=True)
class SeriesKey:
    """Identity of a series within a rank's run."""

    task: str
    vpp_stage: int
    name: str
    micro_step: int | None
    statistic: str

    @property
    def watched(self) -> Watched:
        """Return what the series is a statistic of."""
        return Watched(self.task, self.vpp_stage, self.name, self.micro_step)


@dataclass(frozen=True, slots=True)
class Series:
    """One statistic of one tensor over the steps: ``steps`` int64, ascending and unique, ``values`` float64."""

    key: SeriesKey
    steps: NDArray[np.int64]
    values: NDArray[np.float64]


class Run:
    """One rank's folder.

    ``keys`` are in the order computed: forward tensors in forward order, gradients in backward order. ``notes`` say,
    each in a sentence, what of the files was left out or written twice.
    """

    def __init__(self, folder: Path, contents: Contents, notes: Sequence[str] = ()) -> None:
        self.folder = folder
        self.rank = rank_of(folder)
        self.notes: Sequence[str] = [*notes, *contents.notes]
        self.keys: Sequence[SeriesKey] = [
            SeriesKey(*watched, statistic)
            for watched in contents.rows
            for statistic in contents.statistics[watched.task]
        ]
        self._contents = contents
        self._block: Block | None = None

    def read(self, key: SeriesKey) -> Series:
        """Return a series. Those that follow it in ``keys`` are read along, so that all in their order come fast.

        Raises KeyError for a key that is not one of the run's, MonitorError where files changed since the run was
        opened.
        """
        watched = key.watched
        if watched not in self._contents.rows or key.statistic not in self._contents.statistics[key.task]:
            raise KeyError(key)
        if self._block is None or watched not in self._block.spans:
            self._block = None  # two blocks at a time would take twice the memory
            with _readable(self.folder):
                self._block = read_block(self._contents, watched)
        return Series(key, *self._block.series(watched, key.statistic))


def open_run(folder: str | Path) -> Run:
    """Open one rank's folder of a run; that of a recording means the rank at all of its steps.

    Raises MonitorError where the folder holds no series, or files that cannot be read.
    """
    folder = Path(folder)
    if is_recorded_folder(folder):
        return _open_recording(folder)
    named = [*series_files(folder)]
    if not named:
        raise _no_series(folder)
    parts: list[tuple[FileName, Part]] = []
    notes = _earlier_starts(folder)
    with _readable(folder):
        for path, name in named:
            try:
                parts.append((name, _format(path)(path, name.task)))
            except CutFileError as cut:
                notes.append(str(cut))
        if not parts:
            raise MonitorError(f"{folder}: no file can be read; {notes[-1]}")
        return Run(folder, read_contents(_as_written(parts)), notes)


def _open_recording(folder: Path) -> Run:
    """Open the steps of one rank of a recording; what of them cannot be read is a note."""
    parts: list[Part] = []
    notes: list[str] = []
    names: dict[Watched, Watched] = {}
    with _readable(folder):
        for path in recorded_steps(folder):
            part = RecordedPart(path, names)
            try:
                part.index()
            except MonitorError as error:
                notes.append(f"a step is left out: {error}")
            else:
                parts.append(part)
        if not parts:
            raise MonitorError(f"{folder}: no step can be read; {notes[0]}")
        return Run(folder, read_contents(parts), notes)


def _format(path: Path) -> Callable[[Path, str], Part]:
    return SummaryPart if is_summary(path) else _FORMATS[path.suffix]


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    """Raise MonitorError for what the system does not let be read."""
    try:
        yield
    except OSError as error:
        raise MonitorError(f"{error.filename or folder}: cannot be read: {error.strerror or error}") from None


def rank_folders(folder: str | Path) -> list[Path]:
    """Return a run's folders, one per rank in the order of ranks; a rank's own folder gives itself.

    Of several starts of a rank it is the last, of a recording the rank's folder at its first step. Raises MonitorError
    where there is no such folder.
    """
    folder = Path(folder)
    if is_recorded_folder(folder):
        return [folder]
    starts = {rank_of(each): each for each in run_folders(folder)}
    if not starts:
        if recorded := recorded_ranks(folder):
            return recorded
        raise _no_series(folder)
    return [starts[rank] for rank in sorted(starts, key=lambda rank: -1 if rank is None else rank)]


def run_folders(folder: Path) -> list[Path]:
    """Return the folders of ranks with series, or the folder if it is one, in the order of their starts.

    A gradient probe's folders next to those of a monitored run belong to it, and are left out. Raises MonitorError
    where the folder cannot be read.
    """
    if any(series_files(folder)):
        return [folder]
    found = [each for each in folder.iterdir() if is_run_folder(each) and each.is_dir() and any(series_files(each))]
    watched = [each for each in found if not is_probed_folder(each)]
    return sorted(watched or found, key=lambda each: (started(each), each.name))


def whole_run(folder: Path) -> Path:
    """Return the folder that holds those of all ranks, for the folder of one."""
    return folder.parent.parent if is_recorded_folder(folder) else folder.parent


def run_files(folder: Path) -> list[Path]:
    """Return the files that a rank's run is read from. Raises MonitorError where the folder cannot be read."""
    if is_recorded_folder(folder):
        return recorded_steps(folder)
    return [path for path, _ in series_files(folder)]


def series_files(folder: Path) -> Iterator[tuple[Path, FileName]]:
    """Yield the files of series in a folder with what their names say. Raises MonitorError where it cannot be read."""
    with _readable(folder):
        for path in folder.iterdir():
            if (name := series_file(path)) and path.is_file():
                yield path, name


def series_file(path: Path) -> FileName | None:
    """Return what the name of a file of series says; None for any other file."""
    return file_name(path) if path.suffix in _FORMATS else None


def _as_written(parts: Iterable[tuple[FileName, Part]]) -> list[Part]:
    """Sort parts into the order in which they were written.

    That is the order of their steps; where those of one task overlap, the time of the writing decides.
    """
    ordered = sorted(parts, key=lambda named: (named[0], named[1].path.name))
    overlapping = {
        before.task
        for (before, _), (after, _) in pairwise(ordered)
        if before.task == after.task and after.first <= before.last
    }
    ordered.sort(key=lambda named: (named[0].task, named[1].written if named[0].task in overlapping else 0))
    return [part for _, part in ordered]


def _earlier_starts(folder: Path) -> list[str]:
    """Return which neighbours are earlier starts of the same rank, which `rank_folders` leaves out."""
    if not started(folder):
        return []
    try:
        neighbours = run_folders(folder.absolute().parent)
    except MonitorError:
        return []
    return [
        f"{each.name} is left out: an earlier start of the same rank"
        for each in neighbours
        if rank_of(each) == rank_of(folder) and started(each) < started(folder)
    ]


def _no_series(folder: Path) -> MonitorError:
    """Return the error for a folder without series, which says what else it holds where that is known."""
    if any(folder.rglob("dump.json")):
        whose = "of a recording, pass the folder that holds step<N>/rank<N>/dump.json"
    elif any(folder.rglob("grad_summary_*.csv")):
        whose = "the gradient probe's grad_summary_<step>.csv are deeper; pass the folder that holds rank<N>"
    elif any(folder.rglob("events.out.tfevents*")):
        whose = "it holds TensorBoard events, which cannot be read; monitor with the format csv or parquet"
    else:
        whose = "pass the folder that a monitored run wrote"
    return MonitorError(f"{folder}: no series here, such as actv_0-9.csv, nor in folders of ranks; {whose}")
