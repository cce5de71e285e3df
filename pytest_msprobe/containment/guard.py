"""A process that watches another one that runs items, from outside: no signal, lock or loop of an item can stop it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from pytest_msprobe.containment.child import become
from pytest_msprobe.containment.deadline import EndTime
from pytest_msprobe.containment.exit_cause import KILLED_FROM_OUTSIDE
from pytest_msprobe.containment.process import fork, kill_group, lead_session, wait_for

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
