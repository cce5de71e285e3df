"""``step_times.jsonl`` in a rank's folder of a run: when each step ended, for which msprobe's files have no column."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.series.blocks import last_written
from msprobe_hooks.extensions.monitor.series.paths import opener, unwritable
from msprobe_hooks.json_decoding import read_json_lines

FILE: Final = "step_times.jsonl"

# The year 5138: no line has a time that a browser could not show.
_LATEST = 1e11


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
