"""Monitored runs that never were."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from msprobe_hooks.extensions.monitor.series.reader import Run, SeriesKey, open_run
from msprobe_hooks.extensions.monitor.series.writer import Row, open_writer


def norm(name: str, task: str = "grad_reduced") -> SeriesKey:
    """Return the series of a tensor's norm."""
    micro_step = 0 if task in ("actv", "actv_grad") else None
    return SeriesKey(task, 0, name, micro_step, "norm")


def write_norms(folder: Path, series: Mapping[SeriesKey, Sequence[float]], every: int = 1) -> Run:
    """Write norms at the steps 0, ``every``, ... as a run's CSV files, and open it."""
    writer = open_writer("csv", folder, ["norm"], ndigits=12, steps_per_file=1000)
    for place in range(max(map(len, series.values()))):
        writer.add(
            Row(key.task, key.vpp_stage, key.name, place * every, key.micro_step, (values[place],))
            for key, values in series.items()
            if place < len(values)
        )
    writer.close()
    return open_run(folder)


def activation_rows(folder: Path) -> list[dict[str, str]]:
    """Return the rows of the one file of activations that a monitored run wrote below a folder."""
    (file,) = folder.glob("*/actv_*.csv")
    return [*csv.DictReader(file.read_text().splitlines())]
