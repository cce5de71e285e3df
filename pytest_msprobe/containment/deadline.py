"""A limit on the time that one item may take."""

from __future__ import annotations

import contextlib
import faulthandler
import math
import mmap
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from types import FrameType

from msprobe_hooks.dump.schema import recorded_elements

# What hangs in native code never returns to Python to be interrupted; then the process is ended this much later. A
# choice: so long Python has to unwind what it can interrupt.
_GRACE_SECONDS = 5.0

# What a process takes that the watchdog ends.
_DYING_SECONDS = 1.0

# So many elements double the limit. On one slow, shared core they took 3.4 s (`add`), 9 s (`sort`) and 11 s (`conv2d`,
# forward and backward), golden included: see docs/containment.md.
_ELEMENTS = 10_000_000

# Alarms and watchdogs take no more than some centuries, and a record may claim any size: this is 32 years.
_LONGEST_SECONDS = 1e9


# Where the name of an item begins in the memory that its time is in.
_NAME = 8


class DeadlineExceededError(BaseException):
    """An item took longer than it may; no Exception, so that no handler of the code under test takes it for its own."""


def allowed_seconds(base: float | None, records: Sequence[bytes]) -> float | None:
    """Return how long a call may take: ``base`` for a small one, twice that for 10 million recorded elements.

    ``records`` are the undecoded records of the call.
    """
    if base is None:
        return None
    elements = sum(map(recorded_elements, records))
    return min(base * (1 + elements / _ELEMENTS), _LONGEST_SECONDS)


class EndTime:
    """Time by which a process has to have ended an item by itself, in memory shared with the one that acts otherwise.

    A process that is stopped, or waits for a driver without end, has neither alarm nor watchdog. A page::

        byte 0           8
             | 81234.56 | Torch.add.0.forward, 0, ...     seconds of the monotonic clock, and the item that runs
    """

    def __init__(self) -> None:
        page = memoryview(mmap.mmap(-1, mmap.PAGESIZE))
        self._at = page[:_NAME].cast("d")
        self._name = page[_NAME:]
        self.clear()

    def set_item(self, name: str) -> None:
        """Set the item that runs."""
        text = name.encode(errors="backslashreplace")[: len(self._name) - 1]
        self._name[: len(text) + 1] = text + b"\0"

    @property
    def item(self) -> str:
        """The item that runs."""
        return bytes(self._name).partition(b"\0")[0].decode(errors="ignore")

    @property
    def at(self) -> float:
        """Return when it is; infinite where no item runs."""
        return self._at[0]

    def set(self, at: float) -> None:
        """Set when it is, by the monotonic clock, which processes share."""
        self._at[0] = at

    def clear(self) -> None:
        """Clear it: there is none."""
        self._at[0] = math.inf

    @property
    def is_over(self) -> bool:
        """Return whether it has passed."""
        return time.monotonic() > self._at[0]


class _Deadline:
    """One limit that is running: an alarm that interrupts Python, and a watchdog that ends the process."""

    def __init__(self, seconds: float, watchdog: int | None, end_time: EndTime | None) -> None:
        self._limit = seconds
        self._left = seconds
        self._watchdog = watchdog
        self._end_time = end_time
        self.has_struck = False
        # An item before this one may have blocked the signal.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
        self._former = signal.signal(signal.SIGALRM, self._interrupt)
        self.start()

    def _interrupt(self, signum: int, frame: FrameType | None) -> None:
        self.has_struck = True
        raise self.error()

    def error(self) -> DeadlineExceededError:
        return DeadlineExceededError(f"not finished after {self._limit:.4g} s, the limit of --msprobe-timeout")

    def start(self) -> None:
        self._ends = time.monotonic() + self._left
        grace = min(_GRACE_SECONDS, self._limit)
        if self._end_time is not None:
            self._end_time.set(self._ends + grace + _DYING_SECONDS)
        if self._watchdog is not None:
            faulthandler.dump_traceback_later(self._left + grace, exit=True, file=self._watchdog)
        signal.setitimer(signal.ITIMER_REAL, self._left)

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        # An interval of 0 would turn the alarm off instead of letting it strike at once.
        self._left = max(0.001, self._ends - time.monotonic())
        if self._end_time is not None:
            self._end_time.clear()
        if self._watchdog is not None:
            faulthandler.cancel_dump_traceback_later()

    def close(self) -> None:
        self.stop()
        signal.signal(signal.SIGALRM, self._former)


_running: list[_Deadline] = []


def deadline(
    seconds: float | None, *, watchdog: int | None, end_time: EndTime | None = None
) -> contextlib.AbstractContextManager[None]:
    """Raise DeadlineExceededError in this thread once ``seconds`` have passed; None sets no limit.

    Code that does not return to Python cannot be interrupted so. The process is ended then, with a traceback to the
    file descriptor ``watchdog``; None where this process would not be replaced, and hangs. ``end_time`` receives
    when even that must be done.
    """
    if seconds is None or threading.current_thread() is not threading.main_thread() or sys.platform == "win32":
        return contextlib.nullcontext()
    return _limited(seconds, watchdog, end_time)


@contextlib.contextmanager
def _limited(seconds: float, watchdog: int | None, end_time: EndTime | None) -> Iterator[None]:
    limit = _Deadline(seconds, watchdog, end_time)
    _running.append(limit)
    try:
        try:
            yield
        except Exception as error:
            # What the code under test made of the interruption.
            if limit.has_struck:
                raise limit.error() from error
            raise
        finally:
            limit.stop()
        if limit.has_struck:
            # It has caught the interruption and went on with half a result.
            raise limit.error()
    finally:
        # Again, because the alarm may have struck between the two lines above; it strikes once.
        limit.close()
        _running.remove(limit)


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Stop the clock while an item waits for others."""
    for limit in _running:
        limit.stop()
    try:
        yield
    finally:
        for limit in _running:
            limit.start()
