"""A monitored run's files as TensorBoard events, a curve over the steps for each series."""

from __future__ import annotations

import multiprocessing
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.series.paths import TASKS, rank_of, start_time, started_between
from msprobe_hooks.messages import did_you_mean, shown


def csv2tensorboard_by_step(
    monitor_path: str | Path,
    time_start: str | None = None,
    time_end: str | None = None,
    process_num: int = 1,
    data_type_list: Sequence[str] | None = None,
    output_dirpath: str | Path | None = None,
) -> Path:
    """Write the series of a monitored run as TensorBoard events.

    Events are written into ``rank<r>/<task>/`` with tags ``vp<stage>:<name>[:micro<step>]/<statistic>``. The curves of
    a rank that was started several times are joined; where a step was written twice, the last values are used. Each
    event has the time at which its step ended, where the run holds it, or that of the conversion.

    Args:
        monitor_path: The folder that holds the folders of ranks, in any format.
        time_start: The first start of a rank that is used, as in ``Dec03_21-34-40``; by default any.
        time_end: The last start of a rank that is used; by default any.
        process_num: The number of ranks that are converted at a time.
        data_type_list: The tasks, such as ``actv``; by default all.
        output_dirpath: The folder of the events, by default ``<time>-csv2tensorboard_by_step`` in the current one.

    Returns:
        The folder that was written.

    Raises:
        ValueError: A task is unknown, a time has another form, or the number of processes is below 1.
        MonitorError: No folder fits, files cannot be read, or tensorboard is not installed.
    """
    tasks = TASKS if data_type_list is None else data_type_list
    if unknown := [task for task in tasks if task not in TASKS]:
        hint = did_you_mean(unknown[0], TASKS)
        raise ValueError(f"data_type_list holds {shown(unknown[0])}; allowed: {', '.join(TASKS)}{hint}")
    if type(process_num) is not int or process_num < 1:
        raise ValueError(f"process_num is {shown(process_num)}; allowed: an integer >= 1")
    target = Path(output_dirpath or f"{start_time()}-csv2tensorboard_by_step")
    ranks: defaultdict[int, list[Path]] = defaultdict(list)
    for folder in _folders_between(Path(monitor_path), time_start, time_end):
        ranks[rank_of(folder) or 0].append(folder)
    convert = partial(_convert, tasks, target)
    if process_num == 1 or len(ranks) == 1:
        for rank, folders in ranks.items():
            convert(rank, folders)
    else:
        with ProcessPoolExecutor(process_num, multiprocessing.get_context("spawn")) as pool:
            for _ in pool.map(convert, ranks.keys(), ranks.values()):
                pass
    return target


def _folders_between(folder: Path, first: str | None, last: str | None) -> list[Path]:
    """Return the ranks' folders in the order of their starts. Raises MonitorError where there is none."""
    from msprobe_hooks.extensions.monitor.series.reader import run_folders

    folders = started_between(run_folders(folder), first, last)
    if not folders:
        raise MonitorError(
            f"{folder}: no folder of a rank, such as Dec03_21-34-40-rank0-1d6d9d83, that started from "
            f"{first or 'any time'} to {last or 'any time'}; pass the folder that holds them"
        )
    return folders


def _convert(tasks: Sequence[str], target: Path, rank: int, folders: Sequence[Path]) -> None:
    """Write the events of one rank, started once or several times."""
    # Late: importing this library does not load numpy.
    import numpy as np

    from msprobe_hooks.extensions.monitor.series.blocks import last_written
    from msprobe_hooks.extensions.monitor.series.reader import open_run
    from msprobe_hooks.extensions.monitor.series.step_times import ends_of_steps
    from msprobe_hooks.extensions.monitor.series.tables import open_summary

    starts = [(run, frozenset(run.keys)) for run in map(open_run, folders)]
    times = {ended.step: ended.time for folder in folders for ended in ends_of_steps(folder)}
    for task in tasks:
        keys = [*dict.fromkeys(key for run, _ in starts for key in run.keys if key.task == task)]
        if not keys:
            continue
        with open_summary(target / f"rank{rank}" / task) as summary:
            for key in keys:
                series = [run.read(key) for run, keys_of_run in starts if key in keys_of_run]
                steps, values = last_written(
                    np.concatenate([part.steps for part in series]), np.concatenate([part.values for part in series])
                )
                micro_step = "" if key.micro_step is None else f":micro{key.micro_step}"
                tag = f"vp{key.vpp_stage}:{key.name}{micro_step}/{key.statistic}"
                for step, value in zip(steps.tolist(), values.tolist(), strict=True):
                    summary.add_scalar(tag, value, step, times.get(step))
