"""A monitored run's files for other viewers: TensorBoard events, and msprobe's ``.trend.db``, a SQLite file.

``trend_data`` has a row for each rank, step, tensor (``monitoring_targets``) and task (``monitoring_metrics``), and a
column for each statistic; ``global_stats`` names the tasks' statistics and the ranges of ranks and steps;
``monitoring_tags`` are what the viewer selects tensors by. Numbers lie between -1e9 and 1e9: what is larger is cut to
that, an infinity is one more, and NaN is NULL.
"""

from __future__ import annotations

import math
import multiprocessing
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from functools import partial
from itertools import groupby, pairwise
from operator import attrgetter
from pathlib import Path
from typing import Final
from urllib.parse import quote

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.series.paths import RECORDED_TASKS, TASKS, rank_of, start_time, started_between
from msprobe_hooks.extensions.monitor.series.reader import Run, SeriesKey, open_run, run_folders
from msprobe_hooks.extensions.monitor.series.tables import Row, Watched, open_summary
from msprobe_hooks.messages import did_you_mean, shown

SUFFIX: Final = ".trend.db"
#: The statistics that the viewer shows.
STATISTICS: Final = (
    "norm", "min", "max", "zeros", "nans", "mean", "entropy", "softmax_max", "sr", "kernel_norm", "std_x", "jacobian",
    "proxy", "token_similarity",
)  # fmt: skip
_GREATEST: Final = 1e9  # to which msprobe's trend database clips; one more stands for an infinity
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CALL_OF_API = re.compile(r"(?P<api>(?!Module\.|Cell\.).+?)\.(?P<call>[0-9]+)\.(?P<place>(?:input|output)\b.*)")
_PLACE = re.compile(r"(?P<api>.+?)\.(?P<place>(?:input|output)\b.*)")

_TABLES: Final = """
CREATE TABLE monitoring_targets (target_id INTEGER PRIMARY KEY AUTOINCREMENT, target_name TEXT NOT NULL,
    vpp_stage INTEGER NOT NULL, micro_step INTEGER NOT NULL DEFAULT 0, UNIQUE(target_name, vpp_stage, micro_step));
CREATE TABLE monitoring_metrics (metric_id INTEGER PRIMARY KEY AUTOINCREMENT, metric_name TEXT UNIQUE NOT NULL);
CREATE TABLE monitoring_tags (tag_id INTEGER PRIMARY KEY AUTOINCREMENT, tag_name TEXT NOT NULL,
    category TEXT NOT NULL, metric_id INTEGER NOT NULL, UNIQUE(tag_name, category, metric_id));
CREATE TABLE tag_target_mapping (tag_id INTEGER NOT NULL, target_id INTEGER NOT NULL, PRIMARY KEY (tag_id, target_id));
"""


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

    from msprobe_hooks.extensions.monitor.series.blocks import ends_of_steps, last_written

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


def write_database(path: Path, runs: Mapping[int, Run]) -> list[str]:
    """Write the runs of ranks as a new database.

    Returns sentences on what was left out. Raises MonitorError where the file is there or cannot be written, or no
    statistic is one that the viewer knows.
    """
    if path.exists():
        raise MonitorError(f"{path}: the file exists; remove it or choose another name")
    statistics = {task: _known(runs.values(), task) for task in _tasks(runs.values())}
    tasks = [task for task in statistics if statistics[task]]
    columns = [name for name in STATISTICS if any(name in names for names in statistics.values())]
    if not columns:
        raise MonitorError(f"{path}: the run has none of the statistics of a trend database: {', '.join(STATISTICS)}")
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(part)) as database, database:
            _fill(database, runs, tasks, statistics, columns)
        part.replace(path)
    except (sqlite3.Error, OSError) as error:
        raise MonitorError(f"{path}: cannot be written: {error}") from None
    finally:
        # Where a run could not be read to its end, nothing of it is left.
        part.unlink(missing_ok=True)
    return _left_out(runs.values())


def read_database(path: Path) -> Iterator[tuple[int, Sequence[str], list[Row]]]:
    """Yield rank, statistics and rows of each step of each rank, in the order of ranks and steps.

    Raises MonitorError for a file that is none.
    """
    if not path.is_file():
        raise MonitorError(f"{path}: no such file; pass the .trend.db that msprobe's data2db wrote")
    try:
        # Read only: a file of others stays as it is.
        with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)) as database:
            yield from _steps(path, database)
    except sqlite3.Error as error:
        raise MonitorError(f"{path}: not a trend database: {error}; pass the .trend.db that data2db wrote") from None


def _tasks(runs: Iterable[Run]) -> list[str]:
    return [*dict.fromkeys(key.task for run in runs for key in run.keys if _WORD.fullmatch(key.task))]


def _known(runs: Iterable[Run], task: str) -> list[str]:
    own = {key.statistic for run in runs for key in run.keys if key.task == task}
    return [name for name in STATISTICS if name in own]


def _left_out(runs: Iterable[Run]) -> list[str]:
    keys = [key for run in runs for key in run.keys]
    unknown = sorted({key.statistic for key in keys} - {*STATISTICS})
    odd = sorted({key.task for key in keys if not _WORD.fullmatch(key.task)})
    notes = [f"statistics that the trend viewer does not show are left out: {', '.join(unknown)}"] if unknown else []
    return [*notes, *(f"the tensors of task {shown(task)} are left out: no name for a column" for task in odd)]


def _fill(
    database: sqlite3.Connection,
    runs: Mapping[int, Run],
    tasks: Sequence[str],
    statistics: Mapping[str, Sequence[str]],
    columns: Sequence[str],
) -> None:
    database.executescript(_TABLES)
    numbers = ", ".join(f'"{name}" REAL DEFAULT NULL' for name in columns)
    database.execute(
        "CREATE TABLE trend_data (rank INTEGER NOT NULL, step INTEGER NOT NULL, target_id INTEGER NOT NULL, "
        f"metric_id INTEGER NOT NULL, {numbers}, PRIMARY KEY (rank, step, target_id, metric_id)) WITHOUT ROWID"
    )
    database.executemany("INSERT INTO monitoring_metrics (metric_name) VALUES (?)", [(task,) for task in tasks])
    targets: dict[tuple[str, int, int], int] = {}
    steps: list[int] = []
    marks = ", ".join("?" * (4 + len(columns)))
    for rank, run in runs.items():
        for watched, keys in groupby(run.keys, attrgetter("watched")):
            if watched.task not in tasks:
                continue
            written_keys = [key for key in keys if key.statistic in columns]
            target = targets.setdefault(_target(watched), len(targets) + 1)
            rows = _rows(run, written_keys, columns)
            steps += [min(rows), max(rows)] if rows else []
            metric = tasks.index(watched.task) + 1
            database.executemany(
                f"INSERT INTO trend_data VALUES ({marks})",
                [(rank, step, target, metric, *values) for step, values in rows.items()],
            )
    database.executemany(
        "INSERT INTO monitoring_targets (target_name, vpp_stage, micro_step, target_id) VALUES (?, ?, ?, ?)",
        [(*target, number) for target, number in targets.items()],
    )
    _tag(database)
    _summarize(database, tasks, statistics, max(runs), steps)


def _rows(run: Run, keys: Iterable[SeriesKey], columns: Sequence[str]) -> dict[int, list[float | None]]:
    """Return the numbers of a tensor by step, in the order of the columns."""
    rows: dict[int, list[float | None]] = {}
    for key in keys:
        series, place = run.read(key), columns.index(key.statistic)
        for step, value in zip(series.steps.tolist(), series.values.tolist(), strict=True):
            rows.setdefault(step, [None] * len(columns))[place] = _stored(value)
    return rows


def _target(watched: Watched) -> tuple[str, int, int]:
    """Return name, stage and micro step as msprobe has them: a call of an API has its number as the micro step."""
    if watched.task in RECORDED_TASKS and (match := _CALL_OF_API.fullmatch(watched.name)):
        return f"{match['api']}.{match['place']}", watched.vpp_stage, int(match["call"])
    return watched.name, watched.vpp_stage, watched.micro_step or 0


def _watched(task: str, name: str, vpp_stage: int, micro_step: int) -> Watched:
    """Return what `_target` was made of."""
    if task in RECORDED_TASKS and not name.startswith(("Module.", "Cell.")) and (match := _PLACE.fullmatch(name)):
        return Watched(task, vpp_stage, f"{match['api']}.{micro_step}.{match['place']}", None)
    return Watched(task, vpp_stage, name, micro_step)


def _stored(value: float) -> float | None:
    if math.isnan(value):
        return None
    return math.copysign(_GREATEST + 1, value) if math.isinf(value) else max(-_GREATEST, min(_GREATEST, value))


def _value(stored: float | None) -> float:
    if stored is None:
        return math.nan
    return math.copysign(math.inf, stored) if abs(stored) > _GREATEST else float(stored)


def _tag(database: sqlite3.Connection) -> None:
    """Write what the viewer selects tensors by: ``layers.3`` is a layer, other words of a name are modules."""
    of_target = database.execute(
        "SELECT DISTINCT metric_id, trend_data.target_id, target_name FROM trend_data "
        "JOIN monitoring_targets ON trend_data.target_id = monitoring_targets.target_id"
    ).fetchall()
    numbers: dict[tuple[str, str, int], int] = {}
    pairs = {
        (numbers.setdefault((tag, category, metric), len(numbers) + 1), target)
        for metric, target, name in of_target
        for tag, category in _tags(name)
    }
    database.executemany(
        "INSERT INTO monitoring_tags (tag_name, category, metric_id, tag_id) VALUES (?, ?, ?, ?)",
        [(*tag, number) for tag, number in numbers.items()],
    )
    database.executemany("INSERT INTO tag_target_mapping VALUES (?, ?)", sorted(pairs))


def _tags(name: str) -> set[tuple[str, str]]:
    words = name.split(".")
    layers = {
        (f"{before}.{word}", "layer") for before, word in pairwise(words) if word.isdigit() and not before.isdigit()
    }
    return layers | {(word, "module") for word in words if not word.isdigit()}


def _summarize(
    database: sqlite3.Connection,
    tasks: Sequence[str],
    statistics: Mapping[str, Sequence[str]],
    max_rank: int,
    steps: Sequence[int],
) -> None:
    texts = ", ".join(f'"{task}" TEXT DEFAULT NULL' for task in tasks)
    database.execute(
        "CREATE TABLE global_stats (max_rank INTEGER DEFAULT 0, min_step INTEGER DEFAULT 0, "
        f"max_step INTEGER DEFAULT 0, {texts})"
    )
    row = (max_rank, min(steps, default=0), max(steps, default=0), *(",".join(statistics[task]) for task in tasks))
    database.execute(f"INSERT INTO global_stats VALUES ({', '.join('?' * len(row))})", row)


def _steps(path: Path, database: sqlite3.Connection) -> Iterator[tuple[int, Sequence[str], list[Row]]]:
    columns = [name for _, name, *_ in database.execute("PRAGMA table_info(trend_data)")]
    statistics = [name for name in columns if name in STATISTICS]
    if not statistics:
        raise MonitorError(f"{path}: has no table trend_data with statistics; pass the .trend.db that data2db wrote")
    numbers = ", ".join(f'"{name}"' for name in statistics)
    cursor = database.execute(
        f"SELECT rank, step, metric_name, target_name, vpp_stage, micro_step, {numbers} FROM trend_data "
        "JOIN monitoring_targets ON trend_data.target_id = monitoring_targets.target_id "
        "JOIN monitoring_metrics ON trend_data.metric_id = monitoring_metrics.metric_id "
        "ORDER BY rank, step, trend_data.metric_id, trend_data.target_id"
    )
    rows: list[Row] = []
    at: tuple[int, int] | None = None
    for rank, step, task, name, vpp_stage, micro_step, *values in cursor:
        if at is not None and at != (rank, step):
            yield at[0], statistics, rows
            rows = []
        at = rank, step
        watched = _watched(task, name, vpp_stage, micro_step)
        rows.append(Row(task, vpp_stage, watched.name, step, watched.micro_step, tuple(map(_value, values))))
    if at is not None:
        yield at[0], statistics, rows
