"""Forked checks: a test's check, judged in a process forked from the test's own.

A function of a test, and what it is given, exist in that process alone: fork has them there as they are, where nothing
could be sent. What the check comes to crosses back as plain data.
"""

from __future__ import annotations

import faulthandler
import os
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pytest_msprobe.containment import captured_stderr
from pytest_msprobe.containment.captured_stderr import KernelKills, explain, silent
from pytest_msprobe.containment.deadline import EndTime
from pytest_msprobe.containment.process import ForkedProcess, fork
from pytest_msprobe.containment.run_in_process import Connection, Heard, become
from pytest_msprobe.errors import USER_ERRORS, DeviceError
from pytest_msprobe.results.checked import Checked, from_message, to_message
from pytest_msprobe.results.outcomes import message_of
from pytest_msprobe.results.result import Start, failed_without_result

if TYPE_CHECKING:
    from pytest_msprobe.containment.process_state import ProcessState

# A choice: from the end of its socket to its status a child takes milliseconds, on a loaded machine more.
_DYING_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Task:
    """Work of the forked process: ``begin`` starts the device and says what it is, ``judge`` gives results.

    ``record`` is reported where the process ends before anything is judged.
    """

    record: str
    begin: Callable[[], Start]
    judge: Callable[[], Sequence[Checked]]


def judge_forked(task: Task, state: ProcessState, on_start: Callable[[Start], None]) -> list[Checked]:
    """Judge in a forked process; that it dies, or does not end in time, is the failure of what it judged then.

    ``on_start`` receives what the process runs on. Raises what pytest ends tests and runs by where the process did, and
    DeviceError where the device cannot be used.
    """
    end_time = EndTime()
    if state.timeout is not None:
        # pytest's own watchdog would be a thread that the forked process lacks and waits for.
        faulthandler.cancel_dump_traceback_later()
    kernel_kills = KernelKills()
    own_end, child_end = socket.socketpair()
    parent, pid = os.getpid(), fork()
    if pid == 0:
        own_end.close()
        state.end_time = end_time
        become(parent, lambda: _run(task, state, Connection(child_end)), leads=True)
    child_end.close()
    connection, process = Connection.to_child(own_end), ForkedProcess(pid)
    record, has_started = task.record, False
    try:
        while (heard := connection.wait(end_time, process.has_ended)) is not Heard.LATE:
            message = connection.receive() if heard is Heard.MESSAGE else None
            if message is None:
                words, status = _words(state), process.wait(_DYING_SECONDS)
                cause = explain(status, words, memory_ran_out=kernel_kills.since_last())
                break
            if "start" in message:
                on_start(msgspec.convert(message["start"], Start))
                has_started = True
            elif "judges" in message:
                record = message["judges"]
            else:
                return _results(message)
        else:
            cause = silent(_words(state))
    finally:
        connection.close()
        process.wait(0)
    if not has_started:
        raise DeviceError(f"the device cannot be started: {cause.reason}")
    return [Checked(failed_without_result(record, cause.breakdown, cause.reason))]


def _words(state: ProcessState) -> str:
    return "" if state.folder is None else captured_stderr.read(state.folder.stderr_file(state.name))


def _results(message: dict[str, Any]) -> list[Checked]:
    if "skip" in message:
        pytest.skip(message["skip"])
    if "fail" in message:
        pytest.fail(message["fail"], pytrace=False)
    if "unusable" in message:
        raise DeviceError(message["unusable"])
    if "exit" in message:
        pytest.exit(message["exit"], message["returncode"])
    return [from_message(result) for result in message["results"]]


def _run(task: Task, state: ProcessState, connection: Connection) -> None:
    # What pytest put in their place collects in memory that no one reads here.
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    assert sys.stdout is not None
    state.prepare_to_exit()
    state.on_judging = lambda record: connection.send({"judges": record})
    answer = _answer(task, connection)
    # The process that has the answer kills this one.
    sys.stdout.flush()
    connection.send(answer)


def _answer(task: Task, connection: Connection) -> dict[str, Any]:
    try:
        connection.send({"start": msgspec.to_builtins(task.begin())})
        return {"results": [to_message(checked) for checked in task.judge()]}
    except pytest.skip.Exception as skip:
        return {"skip": message_of(skip)}
    except pytest.fail.Exception as failure:
        return {"fail": message_of(failure)}
    except pytest.exit.Exception as end:
        return {"exit": message_of(end), "returncode": end.returncode}
    except USER_ERRORS as error:
        return {"unusable": message_of(error)}
    except Exception:
        return {"fail": traceback.format_exc()}
