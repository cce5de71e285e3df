"""Series that end before their run does: of a whole task, or of a tensor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np

from msprobe_hooks.extensions.monitor.series.tables import Table, Watched
from msprobe_hooks.messages import listed

# A run that goes on writes one task after the other.
_BEHIND = 2
# Recorded steps without a tensor that had been there at each step, after which it is not the step's own choice.
_MISSED = 5
_SHOWN = 3


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
        for watched, begin, end, held in spans:
            if held:
                known = self._spans.get(watched, (begin, end, 0))
                self._spans[watched] = min(begin, known[0]), max(end, known[1]), held + known[2]
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
