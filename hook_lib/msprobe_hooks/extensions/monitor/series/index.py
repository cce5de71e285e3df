"""What the files of a run hold, gone through once: tensors in the order computed, and what is odd about their steps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.extensions.monitor.series.endings import Endings
from msprobe_hooks.extensions.monitor.series.paths import TASKS
from msprobe_hooks.extensions.monitor.series.tables import Part, Table, Watched


@dataclass(frozen=True, slots=True)
class Contents:
    """What a run's files hold.

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

    def groups(self, part: Part, wanted: Iterable[Watched]) -> list[int]:
        """Return which groups of a file's rows may be of the wanted tensors."""
        numbers = [self._numbers[watched] for watched in wanted]
        lowest, highest = self._reaches[part]
        return [*map(int, np.flatnonzero((lowest <= max(numbers)) & (highest >= min(numbers))))]

    def are_whole(self, parts: Iterable[Part]) -> bool:
        """Return whether files have no groups of rows that could be left aside."""
        return all(self._reaches[part].shape[1] <= 1 for part in parts)


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
