"""Neighbouring tensors read at once, so that series come one after another in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import dropwhile

import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.series.index import Contents
from msprobe_hooks.extensions.monitor.series.tables import Part, Table, Watched

# Little compared with what judging needs, also where several runs are compared. Files that are only read whole, CSV
# among them, are gone through again for each block, so that theirs are larger.
_BLOCK_BYTES = 2**26
_BLOCK_BYTES_OF_WHOLE_FILES = 2**27


@dataclass(frozen=True, slots=True)
class Block:
    """All rows of some tensors of one task, each one's together and in the order written.

    ``values`` are of shape (statistics, rows); ``lacking``, of the same shape, marks the rows of files that do
    not have the statistic, and is None where all have all.
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
            held = ~self.lacking[i, span]
            steps, values = steps[held], values[held]
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
    for watched in dropwhile(lambda each: each != first, contents.rows):
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
