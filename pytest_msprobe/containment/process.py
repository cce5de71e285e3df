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
from pathlib import Path

_PR_SET_PDEATHSIG = 1

# A process of gigabytes takes its time to give them back.
_KILLED_SECONDS = 5.0
# In which a launcher such as torchrun ends its processes.
_GRACE_SECONDS = 40.0


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


def die_with(parent: int) -> None:
    """Have the system kill this process as soon as its parent dies, where the system can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)


def offer_to_oom_killer() -> None:
    """Make this process the one that the system ends when memory runs out, not the one that reports it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")


def wait_for(pid: int, seconds: float) -> int | None:
    """Wait for a child to end, kill it after this time, and return its status as of ``subprocess.Popen.returncode``.

    Returns None where somebody else has waited for it, and where it waits for a driver and cannot be killed: whoever
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
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    return None
