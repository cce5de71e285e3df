"""Processes that may die: made by fork or by a command, never outliving who started them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # linux/prctl.h, as the next one
_PR_SET_CHILD_SUBREAPER = 36

# A process of gigabytes takes its time to give them back.
_KILLED_SECONDS = 5.0
# In which a launcher such as torchrun ends its processes: it gives them 30 seconds before it kills them.
_GRACE_SECONDS = 40.0


def forks_compute() -> bool:
    """Return whether a forked process can compute: those of macOS cannot, as Apple's frameworks do not survive it."""
    return hasattr(os, "fork") and sys.platform != "darwin"


def fork() -> int:
    """Fork this process, as ``os.fork`` does.

    Python warns where there are other threads. Here they hold no lock that the new process takes: they are those of
    idle numeric libraries, and xdist's, whose channels the new process never uses.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def die_with(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Request from the system a signal to this process as soon as its parent dies, where the system can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        # A parent that died before the request never sends the signal: this process would outlive the run.
        if os.getppid() != parent:
            os._exit(1)


def end_if_forked_from(process: int) -> None:
    """End the calling process unless it is ``process``.

    Code under test may fork and return in both processes. The second one holds the connection, the locks and the report
    files of the first: it must not use them. It must not stop the watchdog either, whose thread it does not have and
    for which faulthandler would wait without end.
    """
    if os.getpid() != process:
        os._exit(0)


@contextlib.contextmanager
def ending_forks() -> Iterator[None]:
    """End, where the context ends, the processes that code under test has forked inside of it."""
    # A process that an item forked once returned here and answered for it: the next record got that verdict.
    process = os.getpid()
    try:
        yield
    finally:
        end_if_forked_from(process)


def lead_session() -> None:
    """Make this process the leader of a session and of a process group, by which everything that it forks is found."""
    # Refused where it leads its group already.
    with contextlib.suppress(PermissionError):
        os.setsid()


def kill_group(leader: int) -> None:
    """Kill the processes of a group, those included that are stopped or block signals."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def adopt_orphans() -> None:
    """Adopt every descendant whose own parent dies, where the system can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans() -> None:
    """Kill all children of this process, and their children, which it adopts as their parents die."""
    orphans: set[int] = set()
    while new := _children() - orphans:
        for pid in new:
            wait_for(pid, 0)
        orphans |= new


def _children() -> set[int]:
    try:
        texts = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    except OSError:
        return set()
    return {int(pid) for text in texts for pid in text.split()}


class ForkedProcess:
    """A process that this one has forked, which leads a group of its own; what it leaves is killed with it."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._has_ended = False
        self._status: int | None = None

    def has_ended(self) -> bool:
        """Return whether it has ended.

        The end of its socket does not show it: a process that it has forked may hold that socket.
        """
        if not self._has_ended:
            try:
                ended, status = os.waitpid(self._pid, os.WNOHANG)
            except ChildProcessError:
                self._has_ended = True
            else:
                self._has_ended = bool(ended)
                self._status = os.waitstatus_to_exitcode(status) if ended else None
        return self._has_ended

    def wait(self, seconds: float) -> int | None:
        """Wait for it to end, kill it after this time, kill what it left; return its status as ``wait_for`` does."""
        if not self.has_ended():
            self._status, self._has_ended = wait_for(self._pid, seconds), True
        kill_group(self._pid)
        return self._status


def offer_to_oom_killer() -> None:
    """Make this process the one that the system ends when memory runs out, not the one that reports it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")


def wait_for(pid: int, seconds: float) -> int | None:
    """Wait for a child to end, kill it after this time, and return its status as of ``subprocess.Popen.returncode``.

    Returns None where somebody else has waited for it, and where it waits for a driver and cannot be killed: whatever
    waited for that would hang as well.
    """
    try:
        status = _status(pid, seconds)
        if status is None:
            os.kill(pid, signal.SIGKILL)
            status = _status(pid, _KILLED_SECONDS)
    except ChildProcessError:
        return None
    return status


def end_session(process: subprocess.Popen[bytes]) -> None:
    """End a command that still runs in a session of its own, and its processes.

    A launcher is asked first, as it has started sessions itself.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_SECONDS)


def _status(pid: int, seconds: float) -> int | None:
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        child, status = os.waitpid(pid, os.WNOHANG)
        if child:
            return os.waitstatus_to_exitcode(status)
        # No alarm: code under test may block it, and waitpid itself has no limit of time.
        time.sleep(0.002)
    return None
