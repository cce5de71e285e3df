"""Blocks of neighbouring tensors read at once, the contents of a run's files, series that end early, times of steps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, dropwhile
from pathlib import Path
from typing import Annotated, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.series.paths import TASKS, opener, unwritable
from msprobe_hooks.extensions.monitor.series.tables import Part, Table, Watched
from msprobe_hooks.json_decoding import read_json_lines
from msprobe_hooks.messages import listed

# A run that goes on writes one task after the other.
_BEHIND = 2
# Recorded steps without a tensor that had been there at each step, after which it is not the step's own choice.
_MISSED = 5
_SHOWN = 3

# Little compared with what judging needs, also where several runs are compared. Files that are only read whole, as CSV
# of few tensors, are gone through again for each block, so that theirs are larger.
_BLOCK_BYTES = 2**26
_BLOCK_BYTES_OF_WHOLE_FILES = 2**27

FILE: Final = "step_times.jsonl"

# The year 5138: no line has a time that a browser could not show.
_LATEST = 1e11


class Endings:
    """The first and last steps of all tensors of a run, and the steps of each task."""

    def __init__(self) -> None:
        self._steps: defaultdict[str, set[int]] = defaultdict(set)
        self._spans: dict[Watched, tuple[int, int, int]] = {}

    def see(self, table: Table) -> None:
        """Take the rows of the next file."""
        count = len(table.watched)
        first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
        np.minimum.at(first, table.owners, table.steps)
        np.maximum.at(last, table.owners, table.steps)
        rows = np.bincount(table.owners, minlength=count)
        spans = zip(table.watched, first.tolist(), last.tolist(), rows.tolist(), strict=True)
        for watched, begin, end, row_count in spans:
            if row_count:
                span = self._spans.get(watched, (begin, end, 0))
                self._spans[watched] = min(begin, span[0]), max(end, span[1]), row_count + span[2]
        tasks = {task: number for number, task in enumerate(dict.fromkeys(one.task for one in table.watched))}
        of_rows = np.array([tasks[one.task] for one in table.watched], np.int64)[table.owners]
        for task, number in tasks.items():
            self._steps[task].update(np.unique(table.steps[of_rows == number]).tolist())

    def notes(self, tasks: Iterable[str]) -> Iterator[str]:
        """Yield a sentence for each task that ends early, and one for the tensors of a task that do."""
        every = np.array(sorted(set().union(*self._steps.values())), np.int64)
        for task in tasks:
            own = np.array(sorted(self._steps[task]), np.int64)
            if own.size and np.sum(every > own[-1]) >= _BEHIND:
                yield f"{task}: ends at step {own[-1]}; the run goes on to step {every[-1]}"
            early = [
                (end, watched.name)
                for watched, (begin, end, rows) in self._spans.items()
                if watched.task == task
                and np.sum(own > end) >= _MISSED
                and rows >= max(_MISSED, int(np.sum((own >= begin) & (own <= end))))
            ]
            if early:
                names = listed((f"{name} at step {end}" for end, name in sorted(early)), _SHOWN)
                yield f"{task}: {len(early)} of its series end before step {own[-1]}: {names}"


@dataclass(frozen=True, slots=True)
class Contents:
    """Contents of a run's files.

    ``rows`` are the tensors in the order computed, with how many rows they have; ``parts`` the files of each task in
    the order written, ``statistics`` what any of them has, in the order of the first; ``notes`` sentences on what was
    left out or written twice.
    """

    rows: Mapping[Watched, int]
    parts: Mapping[str, Sequence[Part]]
    statistics: Mapping[str, Sequence[str]]
    notes: Sequence[str]
    _numbers: Mapping[Watched, int]
    _reaches: Mapping[Part, NDArray[np.int64]]

    def groups(self, part: Part, tensors: Iterable[Watched]) -> list[int]:
        """Return which groups of a file's rows may be of the wanted tensors."""
        numbers = [self._numbers[watched] for watched in tensors]
        lowest, highest = self._reaches[part]
        return [*map(int, np.flatnonzero((lowest <= max(numbers)) & (highest >= min(numbers))))]

    def are_whole(self, parts: Iterable[Part]) -> bool:
        """Return whether files have no groups of rows that could be left aside: each has all of the file's tensors."""
        reaches = [self._reaches[part] for part in parts]
        return all(bool((reach == reach[:, :1]).all()) for reach in reaches)


def read_contents(parts: Iterable[Part]) -> Contents:
    """Go through files in the order in which they were written. Raises MonitorError for what cannot be read."""
    rows: Counter[Watched] = Counter()
    numbers: dict[Watched, int] = {}
    reaches: dict[Part, NDArray[np.int64]] = {}
    by_task: defaultdict[str, list[Part]] = defaultdict(list)
    steps: defaultdict[str, _Steps] = defaultdict(_Steps)
    endings = Endings()
    notes: list[str] = []
    for part in parts:
        table = part.index()
        notes += part.notes
        endings.see(table)
        for watched, count in zip(table.watched, np.bincount(table.owners).tolist(), strict=True):
            rows[watched] += count
            numbers.setdefault(watched, len(numbers))
        reaches[part] = _reach(table, numbers)
        for task in dict.fromkeys(watched.task for watched in table.watched):
            by_task[task].append(part)
            steps[task].see(task, table)
    tasks = sorted(by_task, key=lambda task: (TASKS.index(task) if task in TASKS else len(TASKS), task))
    in_task = {task: [watched for watched in rows if watched.task == task] for task in tasks}
    if "grad_reduced" in in_task:
        in_task["grad_reduced"] = _in_backward_order(in_task["grad_reduced"], in_task.get("grad_unreduced", ()))
    ordered = {watched: rows[watched] for task in tasks for watched in in_task[task]}
    notes += [note for task in tasks for note in steps[task].notes(task)]
    notes += endings.notes(tasks)
    statistics = {task: [*dict.fromkeys(chain(*(part.statistics for part in by_task[task])))] for task in tasks}
    return Contents(ordered, {task: by_task[task] for task in tasks}, statistics, notes, numbers, reaches)


def _reach(table: Table, numbers: Mapping[Watched, int]) -> NDArray[np.int64]:
    """Return, of each group of rows, the lowest and the highest number of a tensor, of shape (2, groups)."""
    if not len(table.owners):
        return np.zeros((2, 0), np.int64)
    of_rows = np.array([numbers[watched] for watched in table.watched])[table.owners]
    return np.stack([reach.reduceat(of_rows, table.groups) for reach in (np.minimum, np.maximum)])


def _in_backward_order(reduced: Iterable[Watched], unreduced: Sequence[Watched]) -> list[Watched]:
    """Sort reduced gradients, which msprobe writes in the order of parameters, as the unreduced ones arrived."""
    places: dict[tuple[int, str], int] = {}
    for place, watched in enumerate(unreduced):
        places.setdefault((watched.vpp_stage, watched.name), place)
    return sorted(reduced, key=lambda watched: places.get((watched.vpp_stage, watched.name), len(places)))


class _Steps:
    """The steps of a task's files, and which of them come twice or late."""

    def __init__(self) -> None:
        self._holders: defaultdict[int, list[frozenset[Watched]]] = defaultdict(list)
        self._tensors: dict[frozenset[Watched], frozenset[Watched]] = {}
        self._twice: set[int] = set()
        self._late: set[int] = set()

    def see(self, task: str, table: Table) -> None:
        """Take the rows of the next file."""
        owners, steps = _sorted_by_tensor(task, table)
        is_same = owners[1:] == owners[:-1]
        if (is_same & (steps[1:] <= steps[:-1])).any():
            self._late.update(steps[1:][is_same & (steps[1:] < steps[:-1])].tolist())
            self._twice.update(_repeated(owners, steps))
        tensors = frozenset(watched for watched in table.watched if watched.task == task)
        # Most files have the same tensors; of these sets one is kept.
        tensors = self._tensors.setdefault(tensors, tensors)
        for step in np.unique(steps).tolist():
            others = self._holders[step]
            if any(tensors is other or tensors & other for other in others):
                self._twice.add(step)
            others.append(tensors)

    def notes(self, task: str) -> list[str]:
        """Return a sentence each on steps written twice and out of order."""
        notes = []
        if self._twice:
            notes.append(f"{task}: {_span(self._twice)} written more than once; the last values are used")
        if late := self._late - self._twice:
            notes.append(f"{task}: {_span(late)} written after later steps; sorted")
        return notes


def _sorted_by_tensor(task: str, table: Table) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return owners and steps of a task's rows, the owners ascending."""
    owners, steps = table.owners, table.steps
    is_own = np.array([watched.task == task for watched in table.watched])
    if not is_own.all():
        owners, steps = owners[is_own[owners]], steps[is_own[owners]]
    if (np.diff(owners) < 0).any():
        order = np.argsort(owners, kind="stable")
        owners, steps = owners[order], steps[order]
    return owners, steps


def _repeated(owners: NDArray[np.int32], steps: NDArray[np.int64]) -> set[int]:
    """Return the steps that a tensor has more than once."""
    order = np.lexsort((steps, owners))
    owners, steps = owners[order], steps[order]
    return {*steps[1:][(owners[1:] == owners[:-1]) & (steps[1:] == steps[:-1])].tolist()}


def _span(steps: set[int]) -> str:
    first, last = min(steps), max(steps)
    if first == last:
        return f"step {first} was"
    between = "steps" if len(steps) == last - first + 1 else f"{len(steps)} of the steps"
    return f"{between} {first} to {last} were"


@dataclass(frozen=True, slots=True)
class Block:
    """All rows of some tensors of one task, each one's together and in the order written.

    ``values`` are of shape (statistics, rows); ``lacking``, of the same shape, marks the rows of files that do
    not have the statistic, and is None where all have all. Of two tensors at three steps::

        spans       {Watched("actv", 0, "embed", None): 0:3, Watched("actv", 0, "norm", None): 3:6}
        steps       [  0,   1,   2,     0,   1,   2]
        values      [[1.0, 1.1, 1.2,   0.5, 0.6, 0.5],
                     [3.1, 3.0, 3.3,   2.0, 2.1, 2.0]]     statistics  {"norm": 0, "max": 1}
    """

    spans: dict[Watched, slice]
    statistics: dict[str, int]
    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    lacking: NDArray[np.bool_] | None

    def series(self, watched: Watched, statistic: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return steps, ascending and unique, and values of one series; of a step written twice the last."""
        span, i = self.spans[watched], self.statistics[statistic]
        steps, values = self.steps[span], self.values[i, span]
        if self.lacking is not None:
            present = ~self.lacking[i, span]
            steps, values = steps[present], values[present]
        steps, values = last_written(steps, values)
        # Copies: a series that is kept must not keep the whole block.
        return steps.copy(), values.copy()


def last_written(
    steps: NDArray[np.int64], values: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return steps, ascending and unique, and the value that was written last of each; given in the order written."""
    if (np.diff(steps) > 0).all():
        return steps, values
    order = np.argsort(steps, kind="stable")
    steps, values = steps[order], values[order]
    is_last = np.append(np.diff(steps) > 0, True)
    return steps[is_last], values[is_last]


def read_block(contents: Contents, first: Watched) -> Block:
    """Return the block that begins with a tensor and holds as many of those that follow as fit.

    Raises MonitorError where files have changed since their contents were read.
    """
    parts = contents.parts[first.task]
    statistics = {statistic: i for i, statistic in enumerate(contents.statistics[first.task])}
    size = _BLOCK_BYTES_OF_WHOLE_FILES if contents.are_whole(parts) else _BLOCK_BYTES
    spans = _spans(contents, first, rows=size // (8 * (len(statistics) + 1)))
    count = max(span.stop for span in spans.values())
    steps = np.empty(count, np.int64)
    values = np.empty((len(statistics), count))
    is_uneven = any(len(part.statistics) < len(statistics) for part in parts)
    lacking = np.ones((len(statistics), count), np.bool_) if is_uneven else None
    free = {watched: span.start for watched, span in spans.items()}
    for part in parts:
        groups = contents.groups(part, spans)
        if not groups:
            continue
        table = part.read(spans, groups)
        order = np.argsort(table.owners, kind="stable")
        places = _places(part, table, spans, free)
        steps[places] = table.steps[order]
        for statistic, column in zip(part.statistics, table.values, strict=True):
            values[statistics[statistic], places] = column[order]
            if lacking is not None:
                lacking[statistics[statistic], places] = False
    if any(free[watched] < span.stop for watched, span in spans.items()):
        raise MonitorError(
            f"{parts[0].path.parent}: its files changed while they were read; read the folder once its run has ended"
        )
    return Block(spans, statistics, steps, values, lacking)


def _spans(contents: Contents, first: Watched, rows: int) -> dict[Watched, slice]:
    """Return where each tensor's rows stand in a block of so many rows, or of one tensor where that has more."""
    spans: dict[Watched, slice] = {}
    begin = 0
    for watched in dropwhile(lambda tensor: tensor != first, contents.rows):
        end = begin + contents.rows[watched]
        if watched.task != first.task or (spans and end > rows):
            break
        spans[watched] = slice(begin, end)
        begin = end
    return spans


def _places(part: Part, table: Table, spans: Mapping[Watched, slice], free: dict[Watched, int]) -> NDArray[np.int64]:
    """Return where in a block a file's rows go, these sorted by tensor, and move on the free place of each."""
    counts = np.bincount(table.owners, minlength=len(table.watched))
    begins = np.array([free[watched] for watched in table.watched], np.int64)
    for watched, count in zip(table.watched, counts.tolist(), strict=True):
        free[watched] += count
        if free[watched] > spans[watched].stop:
            raise MonitorError(f"{part.path}: the file changed while it was read; read it once its run has ended")
    return np.repeat(begins - (np.cumsum(counts) - counts), counts) + np.arange(len(table.owners))


class StepTime(msgspec.Struct, frozen=True):
    """The end of a step; ``time`` is in seconds since 1970."""

    step: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    time: Annotated[float, msgspec.Meta(ge=0, lt=_LATEST)]


@dataclass(frozen=True, slots=True)
class StepTimes:
    """The ends of steps: ``steps`` int64, ascending and unique, ``times`` float64, never descending, since 1970."""

    steps: NDArray[np.int64]
    times: NDArray[np.float64]

    def at(self, steps: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the time of each step, between those that are known by a straight line."""
        return np.interp(steps, self.steps, self.times)


def append_step_time(folder: Path, ended: StepTime) -> None:
    """Append the end of a step to the file of a run's folder. Raises MonitorError where it cannot be written."""
    path = folder / FILE
    try:
        with open(path, "ab", opener=opener) as file:
            file.write(msgspec.json.encode(ended) + b"\n")
    except OSError as error:
        raise unwritable(path, error) from None


def ends_of_steps(folder: Path) -> list[StepTime]:
    """Return the lines of the file in their order; none where there is no file.

    Raises MonitorError where one cannot be read; the last line of a process that was killed does not count.
    """
    ends, problems = read_json_lines(folder / FILE, StepTime)
    if problems:
        raise MonitorError(f"{problems[0]}; remove that line, or the file to go without times")
    return ends


def read_step_times(folder: Path) -> StepTimes | None:
    """Return when the steps of a run's folder ended, None where it does not say.

    Of a step that was repeated the last end counts. Where the clock was set back, time does not go on until that is
    made up. Raises MonitorError as `ends_of_steps`.
    """
    ends = ends_of_steps(folder)
    if not ends:
        return None
    steps, times = last_written(np.array([end.step for end in ends]), np.array([end.time for end in ends]))
    return StepTimes(steps, np.maximum.accumulate(times))
