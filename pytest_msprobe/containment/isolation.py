"""Items run in a child of the pytest process, which is replaced when it dies.

Children are forked by a template: a process that has loaded torch and run nothing, so that a replacement takes
milliseconds and inherits no lock of a running thread. The pytest process itself touches no device.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from pytest_msprobe.containment import captured_stderr
from pytest_msprobe.containment.child import Connection, Heard, become, run_template
from pytest_msprobe.containment.deadline import EndTime
from pytest_msprobe.containment.exit_cause import ExitCause, KernelKills, explain, silent
from pytest_msprobe.containment.process import fork, wait_for
from pytest_msprobe.containment.process_state import ProcessState, state_key
from pytest_msprobe.containment.protocols import Contained, judge_elsewhere_key
from pytest_msprobe.containment.run_folder import run_folder_key
from pytest_msprobe.errors import DeviceError
from pytest_msprobe.results.outcomes import Breakdown
from pytest_msprobe.results.result import DirectionResult, Start, failed_without_result, from_plain

# A choice: what a child that hangs in a driver may take to be killed; then the run goes on without it.
_ENDING_SECONDS = 5.0

# With a limit for items a device may take so long to start: a driver that hangs after one of them would hold the run.
_START_SECONDS = 600.0


class Isolation:
    """The template, and the child that runs items now."""

    def __init__(self, config: pytest.Config, items: Mapping[str, Contained], on_fork: Callable[[], None]) -> None:
        self._config = config
        self._items = items
        self._on_fork = on_fork
        self._state = config.stash[state_key]
        self._folder = config.stash[run_folder_key]
        self._stderr = self._folder.stderr_file(self._state.name)
        self._end_time = EndTime()
        self._kernel_kills = KernelKills()
        self._template: _Template | None = None
        self._child: Connection | None = None

    def start(self) -> None:
        """Start a child. Raises DeviceError where it cannot use the device, or dies of it."""
        self._child = self._fork()
        if self._state.timeout is not None:
            self._end_time.set(time.monotonic() + _START_SECONDS)
        heard, hello = self._hear(self._child)
        self._end_time.clear()
        if hello is None:
            cause = self._exit_cause(heard)
            reason = f"not finished after {_START_SECONDS:.4g} s" if heard is Heard.LATE else cause.reason
            raise DeviceError(f"the device cannot be started: {reason}")
        if "unusable" in hello:
            self._drop_child()
            raise DeviceError(hello["unusable"])
        if hello["start"] is not None:
            self._state.host.adopt_start(msgspec.convert(hello["start"], Start))

    def judge(self, item: Contained) -> DirectionResult:
        """Judge an item in the child; that the child dies is the item's failure."""
        try:
            heard, answer = self._ask(item)
            if answer is not None:
                return self._result(answer)
            cause = self._exit_cause(heard)
            if cause.breakdown is Breakdown.OOM:
                self._folder.post("alone", item.path, item.name)
                heard, answer = self._ask(item)
                if answer is not None:
                    return self._result(answer)
                cause = self._exit_cause(heard)
        except BaseException:
            self._drop_child()
            raise
        self._folder.post("abandoned", item.path, item.name)
        return failed_without_result(item.name, cause.breakdown, cause.reason)

    def close(self) -> None:
        """End the child and the template, whatever they are doing."""
        self._drop_child()
        if self._template is not None:
            self._template.close()
            self._template = None

    def _fork(self) -> Connection:
        if self._template is not None:
            try:
                return self._template.fork()
            except OSError:
                # Somebody has ended the template.
                self.close()
        self._template = _Template(self._state, self._items, self._end_time, self._on_fork)
        return self._template.fork()

    def _hear(self, child: Connection) -> tuple[Heard, dict[str, Any] | None]:
        assert self._template is not None
        heard = child.wait(self._end_time, self._template.child_has_ended)
        return heard, child.receive() if heard is Heard.MESSAGE else None

    def _ask(self, item: Contained) -> tuple[Heard, dict[str, Any] | None]:
        if self._child is None:
            try:
                self.start()
            except DeviceError as error:
                _give_up(self._config, str(error))
        assert self._child is not None
        self._end_time.clear()
        try:
            self._child.send({"id": item.nodeid}, [1, 2])
        except OSError:
            return Heard.ENDED, None
        return self._hear(self._child)

    def _result(self, answer: dict[str, Any]) -> DirectionResult:
        sys.stderr.write(captured_stderr.read(self._stderr))
        if "exit" in answer:
            pytest.exit(answer["exit"], answer["returncode"])
        if answer["broken_device"] is not None:
            self._drop_child()
        return from_plain(answer["result"])

    def _exit_cause(self, heard: Heard) -> ExitCause:
        status = self._template.reap() if self._template is not None else None
        self._drop_child()
        words = captured_stderr.read(self._stderr)
        if heard is Heard.LATE:
            return silent(words)
        return explain(status, words, memory_ran_out=self._kernel_kills.since_last())

    def _drop_child(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None


def isolate(config: pytest.Config, items: Mapping[str, Contained], on_fork: Callable[[], None]) -> None:
    """Judge these items in a child from now on. Raises DeviceError where it cannot use the device.

    ``on_fork`` is called in the process that children are forked from, to give up what it must not hold.
    """
    isolation = Isolation(config, items, on_fork)
    config.add_cleanup(isolation.close)
    config.stash[judge_elsewhere_key] = isolation.judge
    isolation.start()


def _give_up(config: pytest.Config, problem: str) -> None:
    """End the run: no item can be judged any more."""
    if hasattr(config, "workeroutput"):
        config.workeroutput["msprobe_unusable"] = problem
    pytest.exit(problem, returncode=pytest.ExitCode.USAGE_ERROR)


class _Template:
    """The process that forks children, one at a time."""

    def __init__(
        self, state: ProcessState, items: Mapping[str, Contained], end_time: EndTime, on_fork: Callable[[], None]
    ) -> None:
        self._control, child_end = socket.socketpair()
        parent = os.getpid()
        self._pid = fork()
        if self._pid == 0:
            self._control.close()
            state.end_time = end_time
            on_fork()
            become(parent, lambda: run_template(child_end, state, items))
        child_end.close()

    def fork(self) -> Connection:
        """Fork a child; the one before it is ended.

        Raises OSError where the template has been ended.
        """
        own_end, child_end = socket.socketpair()
        with child_end:
            socket.send_fds(self._control, [b"fork"], [child_end.fileno()])
        return Connection.to_child(own_end)

    def child_has_ended(self) -> bool:
        """Return whether the process of the child has ended; a template that was ended has taken its child along."""
        try:
            self._control.sendall(b"ended?")
            return self._control.recv(16) != b"no"
        except OSError:
            return True

    def reap(self) -> int | None:
        """Return the status of the child that has died, as of ``subprocess.Popen.returncode``, if it is known."""
        with contextlib.suppress(OSError, ValueError):
            self._control.sendall(b"reap")
            return int(self._control.recv(16))
        return None

    def close(self) -> None:
        """End the template, which ends its child."""
        self._control.close()
        wait_for(self._pid, _ENDING_SECONDS)
