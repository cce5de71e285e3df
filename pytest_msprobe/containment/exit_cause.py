"""Why a process that ran an item died."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from pathlib import Path

from pytest_msprobe.containment.captured_stderr import quoted
from pytest_msprobe.results.outcomes import Breakdown

# What Python's watchdog writes before it ends a process that hangs.
_WATCHDOG = re.compile(r"^Timeout \((\d+):(\d\d):(\d\d(?:\.\d+)?)\)!$", re.MULTILINE)
_WATCHDOG_STATUS = 1

#: The line that a guard writes before it kills a worker that has not ended its item in time.
KILLED_FROM_OUTSIDE = "msprobe: killed from outside after the limit of --msprobe-timeout"

_COUNTERS = (
    Path("/sys/fs/cgroup/memory.events"),
    Path("/sys/fs/cgroup/memory/memory.oom_control"),
    Path("/proc/vmstat"),
)


@dataclass(frozen=True, slots=True)
class ExitCause:
    """How an item ended together with its process, and in words why."""

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
