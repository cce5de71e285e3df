"""One item judged in this process, so that whatever it does is its own result."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from msprobe_hooks.dump.schema import record_path
from msprobe_hooks.errors import DumpError
from pytest_msprobe.containment import last_words
from pytest_msprobe.containment.deadline import DeadlineExceededError, allowed_seconds, deadline
from pytest_msprobe.containment.run_folder import run_folder_key
from pytest_msprobe.results.result import DirectionResult, broken
from pytest_msprobe.run.options import options_key
from pytest_msprobe.run.setups import worker_key

if TYPE_CHECKING:
    from pytest_msprobe.run.item import DumpItem

# How an item ends of which its backward record need not be tried.
_DID_NOT_END = ("timeout", "oom")

# How an item ends that may have broken the device.
_MAY_BREAK_DEVICE = ("run", "timeout", "oom")


def settle(item: DumpItem) -> DirectionResult:
    """Judge an item. What does not end in time, runs out of memory even alone, or is malformed is a failure.

    Afterwards the worker knows whether the device still works.
    """
    worker = item.config.stash[worker_key]
    alone = item.config.stash[run_folder_key].is_posted("alone", item.dump.path, item.name)
    with worker.room.alone() if alone else worker.room.together():
        result = contained(item.config, item.name, item.judge, item.records())
    if _kind(result) == "oom" and not alone:
        worker.make_space()
        with worker.room.alone():
            result = contained(item.config, item.name, item.judge, item.records())
    if _kind(result) == "oom":
        result = _with_reason(result, f"{result.verdict.reason}; so it did when run alone")
    if _kind(result) in _DID_NOT_END:
        worker.abandon(item.dump, item.name)
    if _kind(result) in _MAY_BREAK_DEVICE:
        worker.probe()
        if worker.broken_device is not None:
            result = _with_reason(result, f"{result.verdict.reason}\nAfter it, {worker.broken_device}")
    if _kind(result) in _MAY_BREAK_DEVICE:
        said = last_words.quoted(last_words.read(item.config.stash[run_folder_key].last_words(worker.name)))
        result = _with_reason(result, f"{result.verdict.reason}{said}")
    return result


def contained(
    config: pytest.Config, record: str, judge: Callable[[], DirectionResult], recorded: Sequence[bytes] = ()
) -> DirectionResult:
    """Judge a record within the time that one may take; a malformed or missing file is the record's failure.

    The time grows with the elements of what was ``recorded``. Stderr is kept where the run has a folder for it.
    """
    base, worker = config.stash[options_key].timeout, config.stash[worker_key]
    seconds = allowed_seconds(base, recorded) if base else None
    words = worker.last_words
    watchdog = words.fd if words is not None and worker.is_replaceable else None
    with contextlib.nullcontext() if words is None else words.kept():
        try:
            with deadline(seconds, watchdog=watchdog):
                return judge()
        except DumpError as error:
            text = str(error)
            where = "" if text.startswith("$") else f"{record_path(record)}: "
            return broken(record, "record", f"{where}{text}")
        except DeadlineExceededError as error:
            return broken(record, "timeout", str(error))


def _kind(result: DirectionResult) -> str:
    """Return what failed, where it was no comparison."""
    return result.verdict.standard if result.verdict.outcome == "fail" and not result.outputs else ""


def _with_reason(result: DirectionResult, reason: str) -> DirectionResult:
    return replace(result, verdict=replace(result.verdict, reason=reason))
