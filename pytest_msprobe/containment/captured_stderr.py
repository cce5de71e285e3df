"""Captured stderr of items, in a file that outlives the process that wrote it, and the cause of a process's death."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_msprobe.results.outcomes import Breakdown

_LINES = 20  # choices: what a reader takes in of each failed item, and a journal holds of thousands
_CHARACTERS = 2000

# What a fatal error's report says besides the error and where in the record's call it was.
_ASIDE = re.compile(r"^Extension modules: |^Thread 0x")
_FRAME = '  File "'
_RUNNER = re.compile(r"/pytest_msprobe/(containment/|run/|modes/|engine/replay/(check|judging)\.py)")
_OTHER_THREAD = "/execnet/"


class CapturedStderr:
    """Keeps the stderr of one item at a time, at the level of the file descriptor: native code writes there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        #: Whether the former stderr gets to see it; not so where another process shows it.
        self.is_passed_on = True
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        # Unbuffered below, written through above: what was said before a crash is in the file.
        raw = open(self.fd, "ab", buffering=0, closefd=False)  # noqa: SIM115 - lives as long as the process
        self.stream = io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)

    def close(self) -> None:
        """Close the file."""
        self.stream.close()
        os.close(self.fd)

    def take_fatal_errors(self) -> None:
        """Write Python's report of a fatal signal here too."""
        # The thread that crashed ran the item. Those of all other threads would come first and bury its stack.
        faulthandler.enable(file=self.fd, all_threads=False)

    def kept(self) -> _Kept:
        """Keep what is written within the context that this returns; it is passed on at the end."""
        return _Kept(self)

    @property
    def has_text(self) -> bool:
        """Return whether anything was written."""
        return os.fstat(self.fd).st_size > 0


class _Kept(contextlib.AbstractContextManager[None]):
    """The context of one item. Not a generator's: every item has one."""

    def __init__(self, stderr: CapturedStderr) -> None:
        self._stderr = stderr

    def __enter__(self) -> None:
        if self._stderr.has_text:
            os.ftruncate(self._stderr.fd, 0)
        self._former, self._descriptor = sys.stderr, os.dup(2)
        os.dup2(self._stderr.fd, 2)
        sys.stderr = self._stderr.stream

    def __exit__(self, *_: object) -> None:
        sys.stderr = self._former
        os.dup2(self._descriptor, 2)
        os.close(self._descriptor)
        if self._stderr.is_passed_on and self._stderr.has_text:
            self._former.write(read(self._stderr.path))


def read(path: Path) -> str:
    """Return everything that was kept; nothing where nothing was."""
    try:
        return path.read_text(encoding="utf-8", errors="backslashreplace")
    except OSError:
        return ""


def tail(text: str) -> str:
    """Return the last lines of what an item wrote; a traceback ends where the item was called."""
    lines = list(_relevant(text))
    return "\n".join(lines[-_LINES:])[-_CHARACTERS:]


def _relevant(text: str) -> Iterator[str]:
    is_caller = False
    for line in text.splitlines():
        is_frame = line.startswith(_FRAME)
        is_caller = is_frame and (is_caller or _RUNNER.search(line) is not None)
        is_other = is_frame and _OTHER_THREAD in line
        if line.strip() and not is_caller and not is_other and not _ASIDE.search(line):
            yield line


def quoted(text: str) -> str:
    """Return the last lines as the end of a reason; empty where nothing was written."""
    last = tail(text)
    return f"\nCaptured stderr:\n{last}" if last else ""


# What Python's watchdog writes before it ends a process that hangs.
_WATCHDOG = re.compile(r"^Timeout \((\d+):(\d\d):(\d\d(?:\.\d+)?)\)!$", re.MULTILINE)
_WATCHDOG_STATUS = 1  # `faulthandler.dump_traceback_later(exit=True)` ends a process by _exit(1)

#: The line that a guard writes before it kills a worker that has not ended its item in time.
KILLED_FROM_OUTSIDE = "msprobe: killed from outside after the limit of --msprobe-timeout"

_COUNTERS = (
    Path("/sys/fs/cgroup/memory.events"),
    Path("/sys/fs/cgroup/memory/memory.oom_control"),
    Path("/proc/vmstat"),
)


@dataclass(frozen=True, slots=True)
class ExitCause:
    """Cause of an item's end together with its process, and its description in words."""

    breakdown: Breakdown
    reason: str


def explain(status: int | None, words: str, *, memory_ran_out: bool) -> ExitCause:
    """Distinguish a crash, a hang and the kernel's end of a process that took all memory.

    ``status`` is as of ``subprocess.Popen.returncode``, None where it is not known; ``words`` is what the item wrote
    to stderr; ``memory_ran_out`` says that the kernel has ended a process for its memory meanwhile.
    """
    if KILLED_FROM_OUTSIDE in words and status in (-signal.SIGKILL, None):
        return silent(words.replace(KILLED_FROM_OUTSIDE, ""))
    hung = _WATCHDOG.search(words)
    if hung and status in (_WATCHDOG_STATUS, None):
        return ExitCause(
            Breakdown.TIMEOUT, f"hung in native code; its process was killed after {_seconds(hung)} s{quoted(words)}"
        )
    if memory_ran_out and status in (-signal.SIGKILL, None):
        return ExitCause(Breakdown.OOM, f"ran out of memory; the system killed its process{quoted(words)}")
    return ExitCause(Breakdown.CRASH, f"the process that ran it {_end(status)}{quoted(words)}")


def silent(words: str) -> ExitCause:
    """Describe the exit of a process that neither its alarm nor its watchdog has ended in time."""
    reason = "not finished within the limit of --msprobe-timeout; its process was killed while stopped or in the system"
    return ExitCause(Breakdown.TIMEOUT, f"{reason}{quoted(words)}")


def _seconds(clock: re.Match[str]) -> str:
    hours, minutes, seconds = map(float, clock.groups())
    return f"{3600 * hours + 60 * minutes + seconds:.4g}"


def _end(status: int | None) -> str:
    if status is None:
        return "died"
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


class KernelKills:
    """Notices that the kernel has ended processes for their memory, of this control group or machine."""

    def __init__(self) -> None:
        self._seen = _count()

    def since_last(self) -> bool:
        """Return whether there was one since this was last asked."""
        before, self._seen = self._seen, _count()
        return self._seen > before


def _count() -> int:
    return sum(_oom_kills(path) for path in _COUNTERS)


def _oom_kills(path: Path) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
