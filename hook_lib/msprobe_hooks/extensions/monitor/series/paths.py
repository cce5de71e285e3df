"""Paths of a monitored run's series: a folder per rank and start, in it files named by task and steps.

Names are msprobe's: ``Dec03_21-34-40-rank0-1d6d9d83/actv_0-9.csv``, the time being that of Shanghai. Monitor V2 of 26.x
writes ``rank_0/module_step0-9.csv``, the gradient probe ``rank0/grad_summary_9.csv``.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Final, NamedTuple

from msprobe_hooks.errors import MonitorError

#: What a recording's tensors belong to.
RECORDED_TASKS: Final = ("forward", "recompute", "backward", "parameters_grad")

#: The tasks in the order in which a step computes what they hold; others follow.
TASKS: Final = (
    "param_origin",
    "param",
    *RECORDED_TASKS,
    "actv",
    "attention_hook",
    "linear_hook",
    "moe_router_weight_hook",
    "moe_router_logit_hook",
    "actv_grad",
    "grad_unreduced",
    "grad_reduced",
    "exp_avg",
    "exp_avg_sq",
    "adam_update",
    "adam_ratio",
    "param_updated",
    "other",
)

_FOLDER_MODE = 0o750
_FILE_MODE = 0o640

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# Without daylight saving since 1991, so no table of time zones is needed.
_SHANGHAI = timezone(timedelta(hours=8))

_START = re.compile(rf"({'|'.join(_MONTHS)})([0-9]{{2}})_([0-9]{{2}})-([0-9]{{2}})-([0-9]{{2}})")
_RUN_FOLDER = re.compile(rf"(?P<start>{_START.pattern})(?:-rank(?P<rank>[0-9]+))?-[0-9a-f]{{8}}")
_V2_FOLDER = re.compile(r"rank_(?P<rank>[0-9]+)")
_PROBE_FOLDER = re.compile(r"rank(?P<rank>[0-9]+)")
_FOLDERS = (_RUN_FOLDER, _V2_FOLDER, _PROBE_FOLDER)
_SUMMARY_OF_PROBE = re.compile(r"grad_summary_(?P<step>[0-9]+)")
_FILE = re.compile(r"(?P<task>[A-Za-z][A-Za-z0-9_]*?)_(?:step)?(?P<first>[0-9]+)-(?P<last>[0-9]+)(?:\.[0-9]+)?")


class FileName(NamedTuple):
    """Name of a file of series: its task (Monitor V2: monitor), and the steps it is for."""

    task: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.task}_{self.first}-{self.last}"


def file_name(path: Path) -> FileName | None:
    """Return what the name of a file of series says; None for any other file."""
    if is_summary(path):
        step = int(path.stem.rpartition("_")[2])
        return FileName("grad_reduced", step, step)
    named = _FILE.fullmatch(path.stem)
    return FileName(named["task"], int(named["first"]), int(named["last"])) if named else None


def is_summary(path: Path) -> bool:
    """Return whether a file is named as the gradient probe's summary of a step."""
    return bool(_SUMMARY_OF_PROBE.fullmatch(path.stem))


def tag(vpp_stage: int, name: str, micro_step: int | None, rank: int | None, task: str) -> str:
    """Return what msprobe calls a tensor at work, as ``0:layers.0.output:1/rank3/actv``; rank None goes without."""
    micro = "" if micro_step is None else f":{micro_step}"
    of_rank = "" if rank is None else f"/rank{rank}"
    return f"{vpp_stage}:{name}{micro}{of_rank}/{task}"


def window(step: int, steps_per_file: int) -> tuple[int, int]:
    """Return the first and the last step of the file that a step belongs to."""
    first = step - step % steps_per_file
    return first, first + steps_per_file - 1


def start_time() -> str:
    """Return the time as a folder's name has it, such as ``Dec03_21-34-40``, whatever the locale."""
    now = datetime.now(_SHANGHAI)
    return f"{_MONTHS[now.month - 1]}{now:%d_%H-%M-%S}"


def run_folder(base: Path, rank: int | None) -> Path:
    """Return a new folder's path below the base; a program that is not distributed, rank None, is rank 0."""
    return base / f"{start_time()}-rank{rank or 0}-{secrets.token_hex(4)}"


def make_folder(folder: Path) -> None:
    """Make a folder where it is not there. Raises MonitorError where that cannot be done."""
    try:
        folder.mkdir(_FOLDER_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise MonitorError(f"{folder}: cannot be made: {error.strerror}; choose another folder") from None


def opener(path: str, flags: int) -> int:
    """Open a file as `open` does, and make it one that msprobe reads: it refuses what others may write."""
    return os.open(path, flags, _FILE_MODE)


def unwritable(path: Path, error: OSError) -> MonitorError:
    """Return the error for a file of a run that cannot be written."""
    return MonitorError(f"{path}: cannot be written: {error.strerror}; make room or choose another folder")


def start_order(start: str) -> tuple[int, ...]:
    """Return what sorts times of folders within a year. Raises ValueError for another text."""
    match = _START.fullmatch(start)
    if match is None:
        raise ValueError(f"{start!r} is not a time of a folder; write it as in Dec03_21-34-40")
    return (_MONTHS.index(match[1]), *(int(number) for number in match.groups()[1:]))


def started(folder: Path) -> tuple[int, ...]:
    """Return what sorts folders by the time in their names, within a year; nothing for a name without one."""
    named = _RUN_FOLDER.fullmatch(folder.name)
    return start_order(named["start"]) if named else ()


def started_between(folders: Iterable[Path], first: str | None, last: str | None) -> list[Path]:
    """Return the folders whose names have a time from ``first`` to ``last``, both included; None is any time.

    Raises ValueError for a time in another form.
    """
    earliest, latest = (None if time is None else start_order(time) for time in (first, last))
    return [
        each
        for each in folders
        if (earliest is None or started(each) >= earliest) and (latest is None or started(each) <= latest)
    ]


def earlier_folder(base: Path, rank: int | None, first: str, last: str) -> Path:
    """Return a rank's folder below the base that was started from ``first`` to ``last``, the latest of several.

    Raises MonitorError where there is none, ValueError for a time in another form.
    """
    try:
        folders = [each for each in base.iterdir() if rank_of(each) == (rank or 0) and each.is_dir()]
    except OSError as error:
        raise MonitorError(f"{base}: no folder to append to: {error.strerror}") from None
    between = started_between(filter(started, folders), first, last)
    if not between:
        names = ", ".join(sorted(each.name for each in folders)) or "none"
        raise MonitorError(
            f"{base}: no folder to append to, of rank {rank or 0} and started from {first} to {last}; existing: {names}"
        )
    return max(between, key=started)


def rank_of(folder: Path) -> int | None:
    """Return the rank in a folder's own name; None where it has none."""
    named = next((named for each in _FOLDERS if (named := each.fullmatch(folder.name))), None)
    return int(named["rank"]) if named and named["rank"] else None


def is_run_folder(folder: Path) -> bool:
    """Return whether a folder is named as one rank's folder of a run."""
    return any(each.fullmatch(folder.name) for each in _FOLDERS)


def is_probed_folder(folder: Path) -> bool:
    """Return whether a folder is named as the gradient probe names that of a rank."""
    return bool(_PROBE_FOLDER.fullmatch(folder.name))
