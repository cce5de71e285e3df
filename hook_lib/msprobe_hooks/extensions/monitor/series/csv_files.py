"""Series as msprobe's CSV files: a row per tensor and step, a column per statistic.

PyTorch: ``vpp_stage,name,step[,micro_step],<statistics>[,shape,dtype]``. MindSpore 1.2.2:
``[vpp_stage,]param_name,step,<statistics>`` and
``[vpp_stage,]module_name,step,input.<statistic>…,output.<statistic>…``. Monitor V2:
``vpp_stage,step,module_name,scope[,micro_step],<statistics>``, one file for several tasks. NaN is the text ``nan``, for
MindSpore an empty cell.
"""

from __future__ import annotations

import csv
import os
import re
import sys
from array import array
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

import numpy as np

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.series.paths import FileName, make_folder, opener, unwritable, window
from msprobe_hooks.extensions.monitor.series.tables import CutFileError, Row, Table, Watched
from msprobe_hooks.messages import listed, shown
from msprobe_hooks.regular_files import open_regular

SUFFIX: Final = ".csv"

_NAMES = ("name", "module_name", "param_name")
_KNOWN = {*_NAMES, "vpp_stage", "step", "micro_step", "scope", "shape", "dtype"}
_TASK_OF_SCOPE = {
    "forward": "actv",
    "backward": "actv_grad",
    "unreduced": "grad_unreduced",
    "reduced": "grad_reduced",
    "comm": "other",
}
_CUT_LINES_SHOWN = 3
# Bytes that are looked at for the header of a file that may be none of ours, such as one long line.
_LONGEST_HEADER = 2**16
_SPECIAL = re.compile(r'[,"\r\n]')
# Lines of a group are read or left aside together. A step begins a new one, but where groups would have few lines; a
# choice: places of smaller groups take more memory, larger ones have more tensors that no one wants.
_MOST_LINES, _FEW_LINES = 64, 16


class CsvWriter:
    """Writes each task's rows into the file of their window of steps, and appends to what is there."""

    def __init__(self, folder: Path, statistics: Sequence[str], *, ndigits: int, steps_per_file: int) -> None:
        """Make the folder. Raises MonitorError where that cannot be done."""
        make_folder(folder)
        self._folder = folder
        self.statistics = tuple(statistics)
        self.ndigits = ndigits
        self._steps_per_file = steps_per_file
        self._latest: dict[str, FileName] = {}

    def add(self, rows: Iterable[Row]) -> None:
        """Append rows. Raises MonitorError where a file cannot be written, or has other columns."""
        files: dict[tuple[str, int], list[Row]] = {}
        for row in rows:
            files.setdefault((row.task, row.step // self._steps_per_file), []).append(row)
        for those in files.values():
            self._append(FileName(those[0].task, *window(those[0].step, self._steps_per_file)), those)

    def flush(self) -> None:
        """Do nothing: what was added is on disk."""

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _append(self, name: FileName, rows: Sequence[Row]) -> None:
        path = self._folder / f"{name}{SUFFIX}"
        has_micro_steps = rows[0].micro_step is not None
        header = (",".join(self.columns(name.task, has_micro_steps)) + "\n").encode()
        lines = "".join(self.lines(name.task, rows, has_micro_steps)).encode()
        # One that was left by another program, or whose writing failed, may end in a line that was cut off.
        is_whole = self._latest.pop(name.task, None) == name
        try:
            # A file of Python's takes longer to be opened than a step's lines to be written.
            descriptor = opener(os.fspath(path), os.O_RDWR | os.O_APPEND | os.O_CREAT)
            try:
                if not os.fstat(descriptor).st_size:
                    lines = header + lines
                elif not is_whole:
                    with open(descriptor, "rb", closefd=False) as file:
                        lines = _joint(path, file, header) + lines
                while lines:
                    lines = lines[os.write(descriptor, lines) :]
            finally:
                os.close(descriptor)
        except OSError as error:
            raise unwritable(path, error) from None
        self._latest[name.task] = name

    def columns(self, task: str, has_micro_steps: bool) -> list[str]:
        """Return the header of a task's files."""
        return ["vpp_stage", "name", "step", *["micro_step"] * has_micro_steps, *self.statistics]

    def lines(self, task: str, rows: Sequence[Row], has_micro_steps: bool) -> list[str]:
        """Return the lines of rows of a task."""
        ndigits = self.ndigits
        lines = []
        for row in rows:
            micro_step = f"{'' if row.micro_step is None else row.micro_step}," if has_micro_steps else ""
            values = ",".join([str(round(value, ndigits)) for value in row.values])
            lines.append(f"{row.vpp_stage},{cell(row.name)},{row.step},{micro_step}{values}\n")
        return lines


# The names of a run come at each of its steps.
@lru_cache(maxsize=2**14)
def cell(text: str) -> str:
    """Return a text as a cell, in quotes where it needs them."""
    return '"' + text.replace('"', '""') + '"' if _SPECIAL.search(text) else text


def _joint(path: Path, file: BinaryIO, header: bytes) -> bytes:
    """Return what comes between a file's rows and those appended: an end for a line that was cut off."""
    file.seek(0)
    if (present := file.readline()) != header:
        raise MonitorError(
            f"{path}: its columns are {shown(present.decode(errors='replace').rstrip())}, not "
            f"{shown(header.decode().rstrip())}; choose another folder"
        )
    file.seek(-1, os.SEEK_END)
    return b"" if file.read() == b"\n" else b"\n"


@dataclass(frozen=True, slots=True)
class _Columns:
    """The places of the cells of a line; None for what the file does not have.

    ``values`` are, for each tensor of a line, the end of its name and the columns of its statistics.
    """

    count: int
    name: int
    step: int
    vpp_stage: int | None
    micro_step: int | None
    scope: int | None
    statistics: tuple[str, ...]
    values: tuple[tuple[str, tuple[int, ...]], ...]

    def identity(self) -> Callable[[Sequence[str]], Any]:
        """Return what gives those cells of a line that say of which tensors it is."""
        places = (self.name, self.vpp_stage, self.micro_step, self.scope)
        return itemgetter(*(place for place in places if place is not None))


def _read_header(header: Sequence[str]) -> _Columns | None:
    """Return what the columns mean; None for a header that no version of msprobe writes."""
    place = {name: i for i, name in enumerate(header)}
    name = next((place[title] for title in _NAMES if title in place), None)
    if name is None or "step" not in place or len(place) < len(header):
        return None
    groups: dict[str, dict[str, int]] = {}
    for i, column in enumerate(header):
        if column not in _KNOWN:
            side, dot, statistic = column.partition(".")
            end = f".{side.removesuffix('_grad')}" if dot else ""
            groups.setdefault(end, {})[statistic or column] = i
    kinds = {tuple(group) for group in groups.values()}
    if len(kinds) != 1:
        return None
    return _Columns(
        len(header),
        name,
        place["step"],
        place.get("vpp_stage"),
        place.get("micro_step"),
        place.get("scope"),
        kinds.pop(),
        tuple((end, tuple(group.values())) for end, group in groups.items()),
    )


# Lines that follow each other: the number of the first, its place in the file, and the place of the end.
_Span: TypeAlias = tuple[int, int, int]


class CsvPart:
    """One CSV file of a run, as it was when it was opened: what a running training appends is passed over."""

    def __init__(self, path: Path, task: str) -> None:
        """Read the header.

        Raises CutFileError for a file that ends before its header does, MonitorError for a header that no version of
        msprobe writes.
        """
        self.path = path
        self.notes: Sequence[str] = ()
        self._task = task
        stat = path.stat()
        self.written, self._size = stat.st_mtime_ns, stat.st_size
        with open_regular(path) as file:
            first = file.readline(_LONGEST_HEADER)
        header = first.decode("utf-8-sig", errors="replace")
        if not header.endswith("\n"):
            raise CutFileError(path, "it ends before its header does")
        columns = _read_header(_cells(header))
        if columns is None:
            raise MonitorError(
                f"{path}: its columns are {shown(header.rstrip())}, not those of a monitored run "
                "(vpp_stage,name,step[,micro_step] and statistics); pass the folder that a run wrote"
            )
        self._columns = columns
        self.statistics = columns.statistics
        self._start = len(first)
        # The first line of each group, by its number and by its place in the file.
        self._numbers, self._places = array("q"), array("q")

    def index(self) -> Table:
        """Return all rows without their values. Raises MonitorError for text that cannot be read, by its line."""
        self._numbers, self._places = array("q"), array("q")
        cut: list[int] = []
        table = self._read(None, [(2, self._start, self._size)], cut)
        self.notes = [_cut_lines(self.path, cut)] if cut else []
        return table

    def read(self, tensors: Container[Watched], groups: Sequence[int]) -> Table:
        """Return the rows of the wanted tensors. Raises MonitorError for text that cannot be read, by its line."""
        return self._read(tensors, self._spans(groups), [])

    def _spans(self, groups: Iterable[int]) -> Iterator[_Span]:
        """Yield where groups are, those that follow each other as one."""
        for _, follow in groupby(enumerate(groups), lambda numbered: numbered[1] - numbered[0]):
            members = [group for _, group in follow]
            first, end = members[0], members[-1] + 1
            yield (
                self._numbers[first],
                self._places[first],
                self._places[end] if end < len(self._places) else self._size,
            )

    def _read(self, tensors: Container[Watched] | None, spans: Iterable[_Span], cut: list[int]) -> Table:
        """Return the rows of the wanted tensors with their values, or all rows without, whose groups are noted.

        ``cut`` gets the numbers of lines that are not whole.
        """
        watched: dict[Watched, int] = {}
        owners, steps, values, begins = array("i"), array("q"), array("d"), array("q")
        # The numbers from which on lines begin a group: those of a new step, and any.
        of_step = of_any = 0 if tensors is None else sys.maxsize
        step, column, identity = -1, self._columns.step, self._columns.identity()
        # Of lines that say nothing else than the step and numbers, by what they say.
        by_identity: dict[Any, Sequence[tuple[Watched, Sequence[int]]]] = {}
        for number, place, cells in self._lines(spans, cut):
            try:
                former, step, count = step, int(cells[column]), len(owners)
                in_line = by_identity.get(key := identity(cells))
                if in_line is None:
                    in_line = [*self._tensors(cells)]
                    if len(self._columns.values) == 1:
                        by_identity[key] = in_line
                for tensor, places in in_line:
                    if tensors is None or tensor in tensors:
                        owners.append(watched.setdefault(tensor, len(watched)))
                        steps.append(step)
                        if tensors is not None:
                            values.extend([float(cells[i] or "nan") for i in places])
                if number >= of_step and (number >= of_any or step != former) and len(owners) > count:
                    of_step, of_any = number + _FEW_LINES, number + _MOST_LINES
                    self._numbers.append(number)
                    self._places.append(place)
                    begins.append(count)
            except (ValueError, OverflowError):
                raise MonitorError(f"{self.path}:{number}: {self._wrong_number(cells)}") from None
        return Table(
            [*watched],
            np.array(owners, np.int32),
            np.array(steps, np.int64),
            np.array(values).reshape(-1, len(self.statistics)).T,
            np.array(begins, np.int64),
        )

    def _tensors(self, cells: Sequence[str]) -> Iterator[tuple[Watched, Sequence[int]]]:
        """Yield the tensors of a line, with the columns of their statistics."""
        columns = self._columns
        vpp_stage = 0 if columns.vpp_stage is None else int(cells[columns.vpp_stage])
        micro_step = (
            None if columns.micro_step is None or not cells[columns.micro_step] else int(cells[columns.micro_step])
        )
        task = self._task
        if columns.scope is not None:
            task = _TASK_OF_SCOPE.get(cells[columns.scope], cells[columns.scope])
        sides = columns.values if len(columns.values) == 1 else self._measured(cells)
        for end, places in sides:
            yield Watched(task, vpp_stage, cells[columns.name] + end, micro_step), places

    def _measured(self, cells: Sequence[str]) -> Iterator[tuple[str, Sequence[int]]]:
        """Yield the sides of a call that a line of MindSpore's has numbers of, and those that may be NaN.

        A side without numbers was not measured where ``nans`` would be one, or where the gradients of the other side
        are known: NaN spreads to all gradients that are computed after it.
        """
        are_numbers = [any(cells[i] for i in places) for _, places in self._columns.values]
        is_known = "nans" in self.statistics or (self._task == "actv_grad" and any(are_numbers))
        for has_numbers, side in zip(are_numbers, self._columns.values, strict=True):
            if has_numbers or not is_known:
                yield side

    def _lines(self, spans: Iterable[_Span], cut: list[int]) -> Iterator[tuple[int, int, list[str]]]:
        """Yield number, place and cells of each whole line; ``cut`` gets the numbers of the others."""
        count, size = self._columns.count, self._size
        with open_regular(self.path) as file:
            for first, begin, end in spans:
                file.seek(begin)
                after = begin
                for number, line in enumerate(file, first):
                    place, after = after, after + len(line)
                    cells = _cells(line.decode(errors="replace"))
                    if after <= size and len(cells) == count and line.endswith(b"\n"):
                        yield number, place, cells
                    else:
                        cut.append(number)
                    if after >= end:
                        break

    def _wrong_number(self, cells: Sequence[str]) -> str:
        columns = self._columns
        whole = [i for i in (columns.vpp_stage, columns.step, columns.micro_step) if i is not None]
        for place in whole:
            if not re.fullmatch(r"-?[0-9]{1,18}", cells[place]):
                return f"expected an integer, found {shown(cells[place])}"
        for place in sorted(place for _, places in columns.values for place in places):
            try:
                float(cells[place] or "nan")
            except ValueError:
                return f"expected a number, found {shown(cells[place])}"
        return "a step beyond 64 bits"


def _cells(line: str) -> list[str]:
    """Return a line's cells; none for one whose quotes do not close."""
    line = line.rstrip("\r\n")
    if '"' not in line:
        return line.split(",")
    try:
        return next(csv.reader([line], strict=True))
    except csv.Error:
        return []


def _cut_lines(path: Path, numbers: Sequence[int]) -> str:
    first = listed(map(str, numbers), _CUT_LINES_SHOWN)
    lines = f"line {first} is" if len(numbers) == 1 else f"lines {first} are"
    return f"{path.name}: {lines} cut off and left out"
