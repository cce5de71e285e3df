"""Items judged in this process, so that whatever one does is its own result; a template process and its children."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
import pytest

from msprobe_hooks.dump.schema import record_path
from msprobe_hooks.errors import DumpError
from msprobe_standards.verdict import Verdict
from pytest_msprobe.containment import captured_stderr
from pytest_msprobe.containment.deadline import DeadlineExceededError, allowed_seconds, deadline
from pytest_msprobe.containment.process import (
    ForkedProcess,
    adopt_orphans,
    die_with,
    end_if_forked_from,
    end_orphans,
    ending_forks,
    fork,
    lead_session,
)
from pytest_msprobe.devices.card import compute_something
from pytest_msprobe.errors import UserError
from pytest_msprobe.results.outcomes import Breakdown, describe_error, message_of, place_of
from pytest_msprobe.results.result import DirectionResult, as_utf8, failed_without_result, to_plain

if TYPE_CHECKING:
    from pytest_msprobe.containment.deadline import EndTime
    from pytest_msprobe.containment.process_state import ProcessState
    from pytest_msprobe.containment.protocols import Contained
    from pytest_msprobe.devices.device import Device


def internal_failure(record: str, error: BaseException) -> DirectionResult:
    """Return the failure of a record at which ``error`` was raised. Raises the error again where it ends the run."""
    if ends_run(error):
        raise error
    if isinstance(error, MemoryError):
        return failed_without_result(record, Breakdown.OOM, f"memory ran out: {describe_error(error)}")
    notes = tuple(filter(None, [place_of(error)]))
    return replace(failed_without_result(record, Breakdown.ERROR, describe_error(error)), notes=notes)


def ends_run(error: BaseException) -> bool:
    """Return whether the user or pytest wants the run to end.

    Where Ctrl-C is ignored, as in a child, it was not pressed: the code under test raised what looks like it.
    """
    if isinstance(error, KeyboardInterrupt):
        return signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    return isinstance(error, pytest.exit.Exception)


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
        stderr = captured_stderr.quoted(captured_stderr.read(folder.stderr_file(state.name)))
        result = _with_reason(result, f"{result.verdict.reason}{stderr}")
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


def failed_probe(device: Device) -> str | None:
    """Compute something tiny on the active card; return None where that works, else the error in words.

    A wrong result is no reason to give a card up: whether results are right is what items are about.
    """
    try:
        compute_something(device)
    except BaseException as error:
        if ends_run(error):
            raise
        return describe_error(error)
    return None


# A process that has closed its socket is at its end.
_DYING_SECONDS = 2.0

# How often the parent looks whether a child that says nothing has ended, or should have.
_LOOK_SECONDS = 0.5

# A process sends each message as a whole; one that stops in the middle for so long has died.
_STALLED_SECONDS = 60.0

_SIZE_BYTES = 4  # of the "!I" that each message begins with


class Heard(Enum):
    """Message of a child to the parent that waits for it."""

    MESSAGE = "it has sent something, or closed its end"
    ENDED = "its process has ended and sent nothing"
    LATE = "it should have ended by itself and has not"


class Connection:
    """Messages, of plain data, to and from one process; open files may go with them.

    It belongs to the process that made it. A process that is forked from that one must not answer in its place: each
    later answer would be taken for that to another request.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._owner = os.getpid()

    @classmethod
    def to_child(cls, connected: socket.socket) -> Connection:
        """Return a parent's connection, which a child that dies in the middle of a message does not hold up."""
        connected.settimeout(_STALLED_SECONDS)
        return cls(connected)

    def wait(self, end_time: EndTime, has_ended: Callable[[], bool]) -> Heard:
        """Wait for a message, for the end of the child's process, or for the time by which it has to have ended."""
        while not self.is_heard(_LOOK_SECONDS):
            if end_time.is_over:
                return Heard.LATE
            if has_ended():
                # It may have sent something between the two looks.
                return Heard.MESSAGE if self.is_heard(0) else Heard.ENDED
        return Heard.MESSAGE

    def send(self, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send a message. Raises OSError where the other end is closed."""
        end_if_forked_from(self._owner)
        body = msgspec.msgpack.encode(as_utf8(message))
        size = struct.pack("!I", len(body))
        if descriptors:
            socket.send_fds(self._socket, [size], descriptors)
            self._socket.sendall(body)
        else:
            self._socket.sendall(size + body)

    def receive(self) -> dict[str, Any] | None:
        """Wait for a message; None says that the other side has ended."""
        return self.receive_with_files()[0]

    def receive_with_files(self) -> tuple[dict[str, Any] | None, list[int]]:
        """Wait for a message and return it with the files that came with it."""
        end_if_forked_from(self._owner)
        try:
            size, descriptors, _, _ = socket.recv_fds(self._socket, _SIZE_BYTES, 2)
            size += self._exactly(_SIZE_BYTES - len(size)) if size else b""
            body = self._exactly(struct.unpack("!I", size)[0]) if size else b""
        except (ConnectionError, EOFError, TimeoutError):
            return None, []
        return (msgspec.msgpack.decode(body) if body else None), descriptors

    def is_heard(self, seconds: float) -> bool:
        """Wait at most so long for a message, or the end of the other side; return whether there is one."""
        # A training may have more files open than select knows numbers for.
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        return bool(waiting.poll(seconds * 1000))

    def close(self) -> None:
        """Close the socket, which shows the other side that nothing more comes."""
        self._socket.close()

    def _exactly(self, size: int) -> bytes:
        body = bytearray()
        while len(body) < size:
            part = self._socket.recv(size - len(body))
            if not part:
                raise EOFError
            body += part
        return bytes(body)


def run_template(control: socket.socket, state: ProcessState, items: Mapping[str, Contained]) -> NoReturn:
    """Run as the template until ``control`` is closed or the parent dies.

    It forks a child on ``fork``, says on ``ended?`` whether the child's process has ended, and how it did on ``reap``.
    """
    child: ForkedProcess | None = None

    def end(*_: object) -> None:
        if child is not None:
            child.wait(0)
        end_orphans()
        os._exit(0)

    adopt_orphans()
    signal.signal(signal.SIGTERM, end)
    die_with(os.getppid(), signal.SIGTERM)
    with contextlib.suppress(UserError, ImportError):
        # The child meets the same error and reports it.
        state.host.preload()
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 16, 1)
        if message == b"ended?":
            control.sendall(b"yes" if child is None or child.has_ended() else b"no")
            continue
        status = None
        if child is not None:
            status = child.wait(_DYING_SECONDS if message == b"reap" else 0)
            child = None
            # What an item has left running keeps its memory and its card: the next item would run out of them.
            end_orphans()
        if not message:
            end()
        elif message == b"reap":
            control.sendall(str(status).encode())
        else:
            child = _fork_child(control, partial(_run_child, descriptors, state, items))
            for descriptor in descriptors:
                os.close(descriptor)


def _fork_child(control: socket.socket, run: Callable[[], None]) -> ForkedProcess:
    template = os.getpid()
    pid = fork()
    if pid == 0:
        # The handler of the template would kill the children of this process and report success.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        control.close()
        become(template, run, leads=True)
    return ForkedProcess(pid)


def become(parent: int, task: Callable[[], object], *, leads: bool = False) -> NoReturn:
    """Do this in a process that was just forked, and end it without returning to where it was forked.

    ``leads``: it runs code under test, so that what it leaves has to be found.
    """
    status = 1
    try:
        # Ctrl-C goes to all; who started this process ends it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        die_with(parent)
        if leads:
            lead_session()
        task()
        status = 0
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        # A return, or Python's own end, would run the rest of the session and write its reports a second time.
        os._exit(status)


def _run_child(descriptors: list[int], state: ProcessState, items: Mapping[str, Contained]) -> None:
    connection = Connection(socket.socket(fileno=descriptors[0]))
    # What pytest put in their place collects in memory that no one reads here.
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    state.prepare_to_exit()
    stderr = state.stderr
    assert stderr is not None
    stderr.is_passed_on = False
    with stderr.kept():
        started = _start(state)
    connection.send(started)
    while True:
        request, streams = connection.receive_with_files()
        if request is None:
            return
        # Where pytest captures file descriptors, these are the ones that it reads.
        for number, descriptor in zip((1, 2), streams, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)
        connection.send(_answer(state, items, request["id"]))
        if state.broken_device is not None:
            return


def _start(state: ProcessState) -> dict[str, Any]:
    try:
        return {"start": msgspec.to_builtins(state.host.begin())}
    except Exception as error:
        return {"unusable": message_of(error) if isinstance(error, UserError) else describe_error(error)}


def _answer(state: ProcessState, items: Mapping[str, Contained], nodeid: str) -> dict[str, Any]:
    item = items[nodeid]
    try:
        result = to_plain(judge_in_process(item, state))
    except pytest.exit.Exception as end:
        return {"exit": message_of(end), "returncode": end.returncode}
    except BaseException as error:
        result = to_plain(internal_failure(item.name, error))
    finally:
        sys.stdout.flush()
    return {"result": result, "broken_device": state.broken_device}
