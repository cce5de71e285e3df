"""Isolation of items in a child process, which is replaced when it dies, and the guard that watches it from outside.

Children are forked by a template: a process that has loaded torch and run nothing, so that a replacement takes
milliseconds and inherits no lock of a running thread. The pytest process itself touches no device.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest

from pytest_msprobe.containment import captured_stderr
from pytest_msprobe.containment.captured_stderr import KILLED_FROM_OUTSIDE, ExitCause, KernelKills, explain, silent
from pytest_msprobe.containment.deadline import EndTime
from pytest_msprobe.containment.process import fork, kill_group, lead_session, wait_for
from pytest_msprobe.containment.process_state import ProcessState, state_key
from pytest_msprobe.containment.protocols import Contained, judge_elsewhere_key
from pytest_msprobe.containment.run_folder import run_folder_key
from pytest_msprobe.containment.run_in_process import Connection, Heard, become, run_template
from pytest_msprobe.errors import DeviceError
from pytest_msprobe.results.outcomes import Breakdown
from pytest_msprobe.results.result import DirectionResult, Start, failed_without_result, from_plain

# A choice: what a child that hangs in a driver may take to be killed; then the run goes on without it.
_ENDING_SECONDS = 5.0

# With a limit for items a device may take so long to start: a driver that hangs after one of them would hold the run.
_START_SECONDS = 600.0


class Isolation:
    """The template, and the child that runs items now.

    The processes and what connects them::

        this process ──_control──▶ _Template ──forks──▶ child, which starts the device and runs items
              └──────────_child: an item, its result─────▶┘
    """

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


# A choice: an item that is late is ended half a second later at most, for four wake-ups a second.
_LOOK_SECONDS = 0.25


def guard_worker(end_time: EndTime, stderr: Path, pipes: Sequence[int]) -> None:
    """Kill this worker where it has not ended an item in time, and what it leaves once it has ended.

    The worker leads a session of its own from now on. What it forks does not hold the ``pipes`` to its controller, by
    whose end the controller sees that of the worker.
    """
    lead_session()
    os.register_at_fork(after_in_child=partial(_redirect_to_nowhere, pipes))
    worker = os.getpid()

    def kill() -> None:
        with contextlib.suppress(OSError), stderr.open("a") as file:
            file.write(f"\n{KILLED_FROM_OUTSIDE}\n")
        kill_group(worker)

    if fork() == 0:
        _outlive(worker, end_time, kill)


def _outlive(worker: int, end_time: EndTime, kill: Callable[[], None]) -> NoReturn:
    try:
        # Ctrl-C, and what an item sends to its group, is not meant for this process.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.setpgid(0, 0)
        _close_files(0)
        _watch(worker, end_time, kill)
        kill_group(worker)
    finally:
        os._exit(0)


def guard_run(end_time: EndTime) -> Callable[[], None]:
    """Report an item that this process, which is not replaced, cannot end; return what ends the guard."""
    run = os.getpid()

    def say() -> None:
        words = (
            f"\nmsprobe: {end_time.item} is still running after its limit (--msprobe-timeout): it does not return to "
            "Python, or catches every exception. pytest waits for it, because it runs in pytest's own process. "
            f"To end the run: kill -9 {run}. With -n or --msprobe-isolate such a process is killed and replaced.\n"
        )
        with contextlib.suppress(OSError):
            os.write(2, words.encode(errors="backslashreplace"))

    def watch() -> None:
        _close_files(3)
        _watch(run, end_time, say)

    pid = fork()
    if pid == 0:
        become(run, watch)

    def end() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        wait_for(pid, 1)

    return end


def _watch(process: int, end_time: EndTime, act: Callable[[], None]) -> None:
    """Call ``act`` once for each item that is late, until the parent has ended."""
    late: float | None = None
    acted_on: float | None = None
    while os.getppid() == process:
        # Late at two looks: after Ctrl-Z and fg this process may run before the one that it watches.
        before, late = late, end_time.at if end_time.is_over else None
        if late is not None and late == before and late != acted_on:
            act()
            acted_on = late
        time.sleep(_LOOK_SECONDS)


def _redirect_to_nowhere(files: Sequence[int]) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for file in files:
        os.dup2(nowhere, file, inheritable=False)
    os.close(nowhere)


def _close_files(first: int) -> None:
    """Close what the other process has open: a reader of its pipes waits until they are closed everywhere."""
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))
