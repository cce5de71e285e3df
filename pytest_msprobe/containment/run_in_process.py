"""One item judged in this process, so that whatever it does is its own result."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from msprobe_hooks.dump.schema import record_path
from msprobe_hooks.errors import DumpError
from msprobe_standards.verdict import Verdict
from pytest_msprobe.containment import captured_stderr
from pytest_msprobe.containment.deadline import DeadlineExceededError, allowed_seconds, deadline
from pytest_msprobe.containment.internal_errors import internal_failure
from pytest_msprobe.containment.process import ending_forks
from pytest_msprobe.results.outcomes import Breakdown, describe_error, message_of
from pytest_msprobe.results.result import DirectionResult, failed_without_result

if TYPE_CHECKING:
    from pytest_msprobe.containment.process_state import ProcessState
    from pytest_msprobe.containment.protocols import Contained


def judge_in_process(item: Contained, state: ProcessState) -> DirectionResult:
    """Judge an item. What does not end in time, runs out of memory even alone, is malformed or raises is a failure.

    Afterwards the process knows whether its device still works.
    """
    folder = state.folder
    assert folder is not None
    alone = folder.is_posted("alone", item.path, item.name)
    with state.lock.exclusive() if alone else state.lock.shared():
        result = judge_guarded(state, item.name, item.judge, item.records())
    if result.breakdown is Breakdown.OOM and not alone:
        state.make_space()
        with state.lock.exclusive():
            result = judge_guarded(state, item.name, item.judge, item.records())
    breakdown = result.breakdown
    if breakdown is Breakdown.OOM:
        result = _with_reason(result, f"{result.verdict.reason}; also when run alone")
    if breakdown is None:
        return result
    if breakdown.did_not_end:
        state.abandon(item.path, item.name)
    if breakdown.may_break_device:
        _probe(state)
        if state.broken_device is not None:
            result = _with_reason(result, f"{result.verdict.reason}\nAfterwards, {state.broken_device}")
        said = captured_stderr.quoted(captured_stderr.read(folder.stderr_file(state.name)))
        result = _with_reason(result, f"{result.verdict.reason}{said}")
    return result


def judge_guarded(
    state: ProcessState, record: str, judge: Callable[[], DirectionResult], records: Sequence[bytes] = ()
) -> DirectionResult:
    """Judge a record within the time that one may take; whatever ``judge`` raises is the record's result.

    The time grows with the elements of the undecoded ``records``. Stderr is kept where the run has a folder for it.
    What ends the run passes through: the user's Ctrl-C and ``pytest.exit``.
    """
    if state.on_judging is not None:
        state.on_judging(record)
    seconds = allowed_seconds(state.timeout, records)
    stderr = state.stderr
    with contextlib.nullcontext() if stderr is None else stderr.kept():
        try:
            with deadline(seconds, watchdog=state.watchdog, end_time=state.end_time), ending_forks():
                return judge()
        except DumpError as error:
            text = str(error)
            where = "" if text.startswith("$") else f"{record_path(record)}: "
            return failed_without_result(record, Breakdown.RECORD, f"{where}{text}")
        except DeadlineExceededError as error:
            return failed_without_result(record, Breakdown.TIMEOUT, str(error))
        except pytest.skip.Exception as skip:
            return DirectionResult(record, Verdict("skip", "", message_of(skip)))
        except BaseException as error:
            return internal_failure(record, error)


def _probe(state: ProcessState) -> None:
    """Find out whether the device still works, within the time of a small item: it may hang after what the item did."""
    try:
        with deadline(state.timeout, watchdog=state.watchdog, end_time=state.end_time), ending_forks():
            state.probe()
    except DeadlineExceededError as error:
        # What asks the device may have caught the interruption, and then has an answer.
        state.broken_device = state.broken_device or f"the device no longer works: {describe_error(error)}"


def _with_reason(result: DirectionResult, reason: str) -> DirectionResult:
    return replace(result, verdict=replace(result.verdict, reason=reason))
