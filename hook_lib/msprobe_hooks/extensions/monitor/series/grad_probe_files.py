"""Series from what a gradient probe wrote, ours or msprobe's: three numbers of each gradient, a file per step."""

from __future__ import annotations

from collections.abc import Container, Sequence
from pathlib import Path

import numpy as np

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.grad_probe.reader import summary_rows
from msprobe_hooks.extensions.monitor.series.paths import file_name
from msprobe_hooks.extensions.monitor.series.tables import Table, Watched
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
