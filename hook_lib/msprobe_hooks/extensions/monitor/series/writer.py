"""Writers of series: CSV, and Parquet files for long runs (a finished part per flush, float64 as computed).

The columns are ``vpp_stage, name, step, micro_step`` and the statistics; rows are sorted by tensor. So a statistic's
neighbours have nearly the same exponent: split into streams of bytes, signs and exponents compress to almost nothing,
while of a mantissa's bytes little can be saved in any encoding.
Names and steps, in dictionaries, take a fraction of a byte.
"""

from __future__ import annotations

import math
import os
import re
import time
from array import array
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from msprobe_hooks.errors import ConfigError, MonitorError
from msprobe_hooks.extensions.monitor.series.csv_files import CsvWriter, cell
from msprobe_hooks.extensions.monitor.series.paths import FileName, make_folder, window
from msprobe_hooks.extensions.monitor.series.tables import CutFileError, Row, Table, Watched
from msprobe_hooks.messages import clipped, shown

SUFFIX: Final = ".parquet"

_FILE_MODE = 0o640
_PLACES = ("vpp_stage", "name", "step", "micro_step")
_WRITTEN = b"msprobe_written_ns"
# Small enough that some hundred tensors of a part can be read without the others, large enough for the encodings.
_ROWS_PER_GROUP = 2**14
# However many steps a part is for, memory stays bounded: some 50 MiB at five statistics.
_MOST_ROWS_WAITING = 2**20


def _pyarrow() -> Any:
    """Return pyarrow with its Parquet module. Raises MonitorError where it is not installed."""
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError:
        raise MonitorError(
            "Parquet files need pyarrow; pip install pytest-msprobe[parquet], or choose the format csv"
        ) from None
    return pa


class ParquetWriter:
    """Writes each task's rows since the last flush into a part of their own."""

    def __init__(self, folder: Path, statistics: Sequence[str], *, steps_per_file: int) -> None:
        """Make the folder. Raises MonitorError where that cannot be done or pyarrow is missing."""
        _pyarrow()
        make_folder(folder)
        self._folder = folder
        self._statistics = tuple(statistics)
        self._steps_per_file = steps_per_file
        self._window: tuple[int, int] | None = None
        self._waiting: dict[str, _Waiting] = {}

    def add(self, rows: Iterable[Row]) -> None:
        """Keep rows until they are flushed, which happens also when a window is over or there are very many."""
        for row in rows:
            if (over := window(row.step, self._steps_per_file)) != self._window:
                self.flush()
                self._window = over
            if row.task not in self._waiting:
                self._waiting[row.task] = _Waiting()
            self._waiting[row.task].add(row)
        if sum(len(waiting.steps) for waiting in self._waiting.values()) > _MOST_ROWS_WAITING:
            self.flush()

    def flush(self) -> None:
        """Write what was added as finished parts. Raises MonitorError where that cannot be done."""
        waiting, self._waiting = self._waiting, {}
        for task, rows in waiting.items():
            self._write(FileName(task, min(rows.steps), max(rows.steps)), rows)

    def close(self) -> None:
        """Flush."""
        self.flush()

    def _write(self, name: FileName, rows: _Waiting) -> None:
        pa = _pyarrow()
        path = _free(self._folder, name)
        temporary = path.with_name(f".{path.name}")
        try:
            pa.parquet.write_table(
                rows.as_arrow(pa, self._statistics),
                temporary,
                row_group_size=_ROWS_PER_GROUP,
                compression="zstd",
                use_dictionary=list(_PLACES),
                column_encoding=dict.fromkeys(self._statistics, "BYTE_STREAM_SPLIT"),
                write_statistics=False,
                write_page_checksum=True,
            )
            temporary.chmod(_FILE_MODE)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise MonitorError(f"{path}: cannot be written: {error}; make room or choose another folder") from None


def _free(folder: Path, name: FileName) -> Path:
    """Return a path that nothing lies at, for a run that goes on may write the same steps again."""
    path, count = folder / f"{name}{SUFFIX}", 0
    while path.exists():
        count += 1
        path = folder / f"{name}.{count}{SUFFIX}"
    return path


class _Waiting:
    """Rows of one task, as numbers, since there may be a great many of them.

    Of two tensors at two steps, with two statistics::

        _watched  {embed: 0, norm: 1}
        _owners   [0,          1,          0,          1       ]
        steps     [7,          7,          8,          8       ]
        _values   [1.0, 3.1,   0.5, 2.0,   1.1, 3.0,   0.6, 2.1]
    """

    def __init__(self) -> None:
        self._watched: dict[Watched, int] = {}
        self._owners, self._values = array("i"), array("d")
        self.steps = array("q")

    def add(self, row: Row) -> None:
        self._owners.append(self._watched.setdefault(row.watched, len(self._watched)))
        self.steps.append(row.step)
        self._values.extend(row.values)

    def as_arrow(self, pa: Any, statistics: Sequence[str]) -> Any:
        """Return a table sorted by tensor, the tensors in the order of their first row."""
        owners = np.array(self._owners)
        order = np.argsort(owners, kind="stable")
        owners = owners[order]
        values = np.array(self._values).reshape(len(owners), len(statistics))[order]
        watched = [*self._watched]
        stages = np.array([tensor.vpp_stage for tensor in watched], np.int32)
        micro_steps = np.array([-1 if tensor.micro_step is None else tensor.micro_step for tensor in watched], np.int32)
        columns = {
            "vpp_stage": stages[owners],
            # Not as a dictionary of all names, which each row group would then hold.
            "name": pa.DictionaryArray.from_arrays(owners, [tensor.name for tensor in watched]).cast(pa.string()),
            "step": np.array(self.steps)[order],
            "micro_step": pa.array(micro_steps[owners], mask=micro_steps[owners] < 0),
            **{statistic: np.ascontiguousarray(values[:, i]) for i, statistic in enumerate(statistics)},
        }
        return pa.table(columns).replace_schema_metadata({_WRITTEN: str(time.time_ns())})


class ParquetPart:
    """One Parquet file of a run."""

    notes: Sequence[str] = ()

    def __init__(self, path: Path, task: str) -> None:
        """Read the footer.

        Raises CutFileError where there is none, MonitorError for columns that are not of a run or where pyarrow is
        missing, OSError where the system does not let it be read.
        """
        self.path = path
        self._task = task
        self._pa = _pyarrow()
        try:
            schema = self._pa.parquet.read_schema(path)
        except (self._pa.ArrowException, OSError, ValueError) as error:
            if getattr(error, "errno", None):
                raise
            raise CutFileError(path, "it is cut off before its footer ends") from None
        self.statistics = [name for name in schema.names if name not in _PLACES]
        self.written = _written(schema.metadata or {})
        self._require_columns(dict(zip(schema.names, schema.types, strict=True)))

    def index(self) -> Table:
        """Return all rows without their values. Raises MonitorError for damaged data."""
        return self._read(None)

    def read(self, tensors: Container[Watched], groups: Sequence[int]) -> Table:
        """Return the rows of the wanted tensors. Raises MonitorError for damaged data."""
        return self._read(tensors, groups)

    def _open(self) -> Any:
        return self._pa.parquet.ParquetFile(self.path, read_dictionary=["name"], page_checksum_verification=True)

    def _require_columns(self, kinds: Mapping[str, Any]) -> None:
        pa = self._pa
        places = {"vpp_stage": pa.int32(), "name": pa.string(), "step": pa.int64(), "micro_step": pa.int32()}
        for column, kind in {**dict.fromkeys(kinds, pa.float64()), **places}.items():
            if column not in kinds:
                raise MonitorError(f"{self.path}: has no column {column}, so it is not of a monitored run; remove it")
            if kinds[column] != kind:
                raise MonitorError(
                    f"{self.path}: its column {shown(column)} is of {kinds[column]}, not of {kind} as in a monitored "
                    "run; remove it"
                )

    def _read(self, tensors: Container[Watched] | None, groups: Sequence[int] | None = None) -> Table:
        """Return the rows of the wanted tensors with their values, or all rows without."""
        watched: dict[Watched, int] = {}
        owners, steps = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
        values = [np.zeros((len(self.statistics), 0))]
        try:
            with self._open() as file:
                for group in range(file.num_row_groups) if groups is None else groups:
                    places = _Places.of(file.read_row_group(group, list(_PLACES), use_threads=False), self._task)
                    is_wanted = np.array([tensors is None or tensor in tensors for tensor in places.watched])
                    selected = compress(places.watched, is_wanted)
                    numbers = np.array([watched.setdefault(tensor, len(watched)) for tensor in selected], np.int32)
                    rows = np.repeat(is_wanted, places.counts)
                    owners.append(np.repeat(numbers, places.counts[is_wanted]))
                    steps.append(places.steps[rows])
                    if tensors is not None:
                        columns = file.read_row_group(group, list(self.statistics), use_threads=False).columns
                        values.append(np.stack([column.to_numpy()[rows] for column in columns]))
        except (self._pa.ArrowException, OSError, ValueError, IndexError) as error:
            if getattr(error, "errno", None):
                raise
            problem = " ".join(str(error).split())
            raise MonitorError(f"{self.path}: its data are damaged: {clipped(problem)}; remove it") from None
        begins = np.cumsum([len(piece) for piece in owners[:-1]])
        return Table([*watched], np.concatenate(owners), np.concatenate(steps), np.concatenate(values, axis=1), begins)


@dataclass(frozen=True, slots=True)
class _Places:
    """The content of rows, run by run of the same tensor: the tensors, how many rows each has, and the rows' steps."""

    watched: Sequence[Watched]
    counts: NDArray[np.int64]
    steps: NDArray[np.int64]

    @classmethod
    def of(cls, table: Any, task: str) -> _Places:
        """Return the content of the columns other than statistics."""
        if not table.num_rows or any(table.column(name).null_count for name in ("vpp_stage", "name", "step")):
            raise ValueError("rows without a stage, a name or a step")
        table = table.unify_dictionaries().combine_chunks()
        names = table.column("name").chunk(0)
        name, vpp_stage, steps = names.indices.to_numpy(), *(table.column(c).to_numpy() for c in ("vpp_stage", "step"))
        micro_step = table.column("micro_step").fill_null(-1).to_numpy()
        changes = np.diff(name) | np.diff(vpp_stage) | np.diff(micro_step)
        begins = np.append(0, np.flatnonzero(changes) + 1)
        texts = names.dictionary.to_pylist()
        watched = [
            Watched(task, stage, texts[i], None if micro < 0 else micro)
            for i, stage, micro in zip(
                name[begins].tolist(), vpp_stage[begins].tolist(), micro_step[begins].tolist(), strict=True
            )
        ]
        return cls(watched, np.diff(np.append(begins, len(steps))), steps)


def _written(metadata: Mapping[bytes, bytes]) -> int:
    text = metadata.get(_WRITTEN, b"")
    return int(text) if re.fullmatch(rb"[0-9]{1,19}", text) else 0


_SIDES: Final = {"actv": ("input", "output"), "actv_grad": ("input_grad", "output_grad")}
_TASKS: Final = {"param_origin": "param"}
_OF_PARAMETERS: Final = ("param", "param_updated")

_TENSOR = re.compile(r"(?P<module>.*)\.(?P<side>input|output)(_.*)?", re.DOTALL)


class MindSporeCsvWriter(CsvWriter):
    """Writes one tensor of each side of a call, the first, as msprobe 1.2.2 does."""

    def add(self, rows: Iterable[Row]) -> None:
        """Append rows, those of parameters before a step as task ``param``. Raises MonitorError as a CsvWriter does."""
        super().add([replace(row, task=_TASKS[row.task]) if row.task in _TASKS else row for row in rows])

    def columns(self, task: str, has_micro_steps: bool) -> list[str]:
        """Return the header of a task's files."""
        if task in _SIDES:
            values = [f"{side}.{statistic}" for side in _SIDES[task] for statistic in self.statistics]
            return ["vpp_stage", "module_name", "step", *values]
        return [*["vpp_stage"] * (task not in _OF_PARAMETERS), "param_name", "step", *self.statistics]

    def lines(self, task: str, rows: Sequence[Row], has_micro_steps: bool) -> list[str]:
        """Return the lines of rows of a task."""
        if task not in _SIDES:
            return [self._line_of(task, row, _with_micro_step(row.name, row), self._cells(row.values)) for row in rows]
        calls: dict[tuple[int, int, str], dict[str, Row]] = {}
        for row in rows:
            if tensor := _TENSOR.fullmatch(row.name):
                call = (row.vpp_stage, row.step, _with_micro_step(tensor["module"], row))
                calls.setdefault(call, {}).setdefault(tensor["side"], row)
        unknown = (math.nan,) * len(self.statistics)
        lines = []
        for (_, _, name), sides in calls.items():
            values = [sides[side].values if side in sides else unknown for side in ("input", "output")]
            lines.append(self._line_of(task, next(iter(sides.values())), name, self._cells([*values[0], *values[1]])))
        return lines

    def _line_of(self, task: str, row: Row, name: str, values: str) -> str:
        stage = "" if task in _OF_PARAMETERS else f"{row.vpp_stage},"
        return f"{stage}{cell(name)},{row.step},{values}\n"

    def _cells(self, values: Sequence[float]) -> str:
        return ",".join(["" if math.isnan(value) else str(round(value, self.ndigits)) for value in values])


def _with_micro_step(name: str, row: Row) -> str:
    return name if row.micro_step is None else f"{name}_{row.micro_step}"


__all__ = ["Row", "SeriesWriter", "open_writer"]


class SeriesWriter(Protocol):
    """A run's folder that is being written."""

    def add(self, rows: Iterable[Row]) -> None:
        """Take rows of finished steps, in the order in which they were computed."""

    def flush(self) -> None:
        """Write what was added to disk. What is there after this survives a crash of the program."""

    def close(self) -> None:
        """Flush; nothing is added afterwards."""


def open_writer(
    format: str,  # noqa: A002 - the config's key
    folder: Path,
    statistics: Sequence[str],
    *,
    ndigits: int,
    steps_per_file: int,
) -> SeriesWriter:
    """Return what writes files of a format into a run's folder, which is made where it is not there.

    ``ndigits`` are the decimals of a CSV; the other formats keep what they are given. Raises ConfigError for an unknown
    format, MonitorError where the folder cannot be written or what the format needs is not installed.
    """
    opener = _FORMATS.get(format)
    if opener is None:
        raise ConfigError("format", format, ", ".join(_FORMATS), known=_FORMATS)
    return opener(folder, statistics, ndigits, steps_per_file)


def _csv(folder: Path, statistics: Sequence[str], ndigits: int, steps_per_file: int) -> SeriesWriter:
    from msprobe_hooks.extensions.monitor.series.csv_files import CsvWriter

    return CsvWriter(folder, statistics, ndigits=ndigits, steps_per_file=steps_per_file)


def _mindspore_csv(folder: Path, statistics: Sequence[str], ndigits: int, steps_per_file: int) -> SeriesWriter:

    return MindSporeCsvWriter(folder, statistics, ndigits=ndigits, steps_per_file=steps_per_file)


def _parquet(folder: Path, statistics: Sequence[str], ndigits: int, steps_per_file: int) -> SeriesWriter:

    return ParquetWriter(folder, statistics, steps_per_file=steps_per_file)


def _events(folder: Path, statistics: Sequence[str], ndigits: int, steps_per_file: int) -> SeriesWriter:
    from msprobe_hooks.extensions.monitor.series.tables import EventWriter

    return EventWriter(folder, statistics)


_FORMATS: dict[str, Callable[[Path, Sequence[str], int, int], SeriesWriter]] = {
    "csv": _csv,
    "parquet": _parquet,
    "tensorboard": _events,
    "mindspore-csv": _mindspore_csv,
}
