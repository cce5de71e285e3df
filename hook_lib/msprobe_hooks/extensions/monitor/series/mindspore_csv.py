"""The CSV files that msprobe 1.2.2 writes of MindSpore: a line has both what a cell is given and what it gives.

``vpp_stage,module_name,step,input.<statistic>…,output.<statistic>…`` (``input_grad``, ``output_grad``) for cells,
``vpp_stage,param_name,step,<statistics>`` for parameters' gradients and moments, ``param_name,step,<statistics>`` for
parameters. The micro step follows a cell's name (``layers.0_1``), and what is not known or NaN is an empty cell.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from msprobe_hooks.extensions.monitor.series.csv_files import CsvWriter, cell
from msprobe_hooks.extensions.monitor.series.tables import Row

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
