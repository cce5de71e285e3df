"""Results of series, and the files that the series of a run are read from."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.dump.paths import DUMP_FILE
from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.series.reader import (
    Run,
    SeriesKey,
    open_run,
    run_files,
    series_file,
    series_files,
)
from msprobe_hooks.extensions.monitor.series.tables import is_recorded_folder
from msprobe_standards.verdict import Outcome, Verdict
from pytest_msprobe.extensions.monitor.series_names import ALARMED, Alarm, Alarmed, Place, item_name
from pytest_msprobe.results.result import SPREAD, DirectionResult, Spread
from pytest_msprobe.results.skip_reasons import BaseSkipReason


def alarmed(
    key: SeriesKey, rank: int | None, place: Place, alarms: list[Alarm], outcome: Outcome, story: str
) -> DirectionResult:
    """Return the result of a series with alarms, by the rule of the first of them."""
    series = Alarmed(
        item=item_name(key),
        rank=rank or 0,
        task=key.task,
        vpp_stage=key.vpp_stage,
        name=key.name,
        micro_step=key.micro_step or 0,
        statistic=key.statistic,
        place=place,
        alarms=alarms,
    )
    verdict = Verdict(outcome, alarms[0].rule, story, margin=math.inf)
    return DirectionResult(item_name(key), verdict).with_extra(ALARMED, msgspec.to_builtins(series))


class MonitorSkip(BaseSkipReason):
    """Reason why a series is not judged."""

    NO_RULE = "the policy has no rule for this statistic"
    NOT_MEASURED = "no value at any step: not a tensor, no elements, or, for id, with dimensions"
    WATCHED_BY_ONE = "only one of the two runs has such series"
    OTHER_MICRO_BATCHES = "the steps of the two runs have other micro batches, which this tensor depends on"
    JUMPS = "a share of elements jumps by whole elements; it is judged in single runs only"
    ROUNDING = "the gradient is so small compared with the largest that rounding may decide its signs"
    NO_COMMON_STEP = "the two runs have no step in common"


def skipped(key: SeriesKey, reason: MonitorSkip) -> DirectionResult:
    """Return the result of a series that is not judged."""
    return DirectionResult(item_name(key), Verdict("skip", "", reason.value), skip=reason)


def with_spread(result: DirectionResult, rank: int | None, values: NDArray[np.float64]) -> DirectionResult:
    """Return a result with the numbers between which the values of its series lie, where any is finite."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return result
    spread = Spread(rank or 0, float(finite.min()), float(np.median(finite)), float(finite.max()))
    return result.with_extra(SPREAD, msgspec.to_builtins(spread))


def first_file(folder: Path) -> Path:
    """Return the file of series that comes first by task and steps, or the folder's own dump."""
    if is_recorded_folder(folder):
        return folder / DUMP_FILE
    return min((name, path) for path, name in series_files(folder))[1]


def open_run_of(path: Path) -> Run:
    """Open the folder that a file of series is in. Raises MonitorError for any other file."""
    if not path.exists():
        raise MonitorError(f"{path}: no such folder; pass the folder that a monitored run wrote")
    if series_file(path) is None and path.name != DUMP_FILE:
        raise MonitorError(
            f"{path}: not a file of series, such as actv_0-9.csv; pass the folder that a monitored run wrote"
        )
    return open_run(path.parent)


def listing(folder: Path) -> str:
    """Return a short digest of the files that a rank's run is read from, by name and size."""
    names = sorted(f"{'/'.join(path.parts[-3:])} {path.stat().st_size}" for path in run_files(folder))
    return hashlib.blake2b("\n".join(names).encode(), digest_size=16).hexdigest()
