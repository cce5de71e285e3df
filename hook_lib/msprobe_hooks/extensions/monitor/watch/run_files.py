"""The files that a monitored run writes, as its plan says."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from msprobe_hooks.extensions.monitor.series.blocks import StepTime, append_step_time
from msprobe_hooks.extensions.monitor.series.paths import earlier_folder, run_folder, window
from msprobe_hooks.extensions.monitor.series.writer import Row, SeriesWriter, open_writer
from msprobe_hooks.extensions.monitor.watch.config import Plan


class RunFiles:
    """The files of one rank of a run, below a base; ``folder`` is where they are written, None where there are none."""

    def __init__(self, base: Path, rank: int | None) -> None:
        self.folder: Path | None = None
        self._base = base
        self._rank = rank
        self._plan = Plan(format="api")
        self._writer: SeriesWriter | None = None

    def follow(self, plan: Plan) -> None:
        """Open the files of a plan in a new folder or one it names, unless those that are open suit it.

        Raises MonitorError where the folder cannot be written, or is not there.
        """
        if self._writer is None or _options(plan) != _options(self._plan):
            folder = self._folder_of(plan)
            self.folder = None
            self.close()
            if plan.format != "api":
                self._writer = open_writer(
                    plan.format, folder, plan.statistics, ndigits=plan.ndigits, steps_per_file=plan.steps_per_file
                )
                self.folder = folder
        self._plan = plan

    def _folder_of(self, plan: Plan) -> Path:
        if plan.appends_to is None:
            return run_folder(self._base, self._rank)
        return earlier_folder(self._base, self._rank, *plan.appends_to)

    def add(self, step: int, rows: Sequence[Row]) -> None:
        """Take the rows of a step that ends now; files whose last step this is are flushed. Raises MonitorError."""
        if self._writer is not None:
            # Events have the time of each; here it comes first, so that there is one for each step that has rows.
            if self.folder is not None and self._plan.format != "tensorboard":
                append_step_time(self.folder, StepTime(step, time.time()))
            self._writer.add(rows)
            length = self._plan.steps_per_file
            if window(step, length) != window(step + self._plan.every, length):
                self._writer.flush()

    def close(self) -> None:
        """Finish the files. Raises MonitorError where they cannot be written."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


def _options(plan: Plan) -> tuple[object, ...]:
    return plan.format, plan.statistics, plan.ndigits, plan.steps_per_file, plan.appends_to
