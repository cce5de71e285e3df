"""What runs in the processes of an isolated run: the template, which forks children, and a child, which runs items."""

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
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
import pytest

from pytest_msprobe.containment.in_process import judge_in_process
from pytest_msprobe.containment.process import die_with, fork, wait_for
from pytest_msprobe.containment.unexpected import unexpected
from pytest_msprobe.errors import UserError
from pytest_msprobe.results.exceptions import describe_error, message_of
from pytest_msprobe.results.result import as_utf8, to_plain

if TYPE_CHECKING:
    from pytest_msprobe.containment.seam import Contained
    from pytest_msprobe.containment.state import ProcessState

# A process that has closed its socket is at its end.
_DYING_SECONDS = 2.0

_SIZE_BYTES = 4


class Connection:
    """Messages, of plain data, to and from one process; open files may go with them."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def send(self, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send a message. Raises OSError where nobody receives any more."""
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
        try:
            size, descriptors, _, _ = socket.recv_fds(self._socket, _SIZE_BYTES, 2)
            size += self._exactly(_SIZE_BYTES - len(size)) if size else b""
            body = self._exactly(struct.unpack("!I", size)[0]) if size else b""
        except (ConnectionError, EOFError):
            return None, []
        return (msgspec.msgpack.decode(body) if body else None), descriptors

    def is_heard(self, seconds: float) -> bool:
        """Wait at most so long for a message, or the end of the other side; tell whether there is one."""
        return bool(select.select([self._socket], [], [], seconds)[0])

    def close(self) -> None:
        """Tell the other side that there is nothing more."""
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
    """Be the template until ``control`` is closed: fork on ``fork``, tell how the child ended on ``reap``."""
    with contextlib.suppress(UserError, ImportError):
        # The child meets the same error and tells it.
        state.host.preload()
    child = 0
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 16, 1)
        if child and message != b"reap":
            os.kill(child, signal.SIGKILL)
            wait_for(child, _DYING_SECONDS)
            child = 0
        if not message:
            os._exit(0)
        if message == b"reap":
            control.sendall(str(wait_for(child, _DYING_SECONDS)).encode())
            child = 0
            continue
        template = os.getpid()
        child = fork()
        if child == 0:
            control.close()
            become(template, partial(_run_child, descriptors, state, items))
        for descriptor in descriptors:
            os.close(descriptor)


def become(parent: int, task: Callable[[], object]) -> NoReturn:
    """Do this in a process that was just forked, and end it without returning to where it was forked."""
    status = 1
    try:
        # Ctrl-C goes to all; who started this process ends it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        die_with(parent)
        task()
        status = 0
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(status)


def _run_child(descriptors: list[int], state: ProcessState, items: Mapping[str, Contained]) -> None:
    connection = Connection(socket.socket(fileno=descriptors[0]))
    # What pytest put in their place collects in memory that nobody reads here.
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
        result = to_plain(unexpected(item.name, error))
    finally:
        sys.stdout.flush()
    return {"result": result, "broken_device": state.broken_device}
