"""A limit on the time that one item may take."""

from __future__ import annotations

import contextlib
import faulthandler
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

# What hangs in native code never returns to Python to be interrupted; then the process is ended this much later.
_GRACE_SECONDS = 5.0


class DeadlineExceededError(BaseException):
    """An item took longer than it may; no Exception, so that no handler of the code under test takes it for its own."""


@contextlib.contextmanager
def deadline(seconds: float | None, *, last_words: int | None) -> Iterator[None]:
    """Raise DeadlineExceededError in this thread once ``seconds`` have passed; None sets no limit.

    Code that does not return to Python cannot be interrupted so. The process is ended then, with a traceback to the
    file descriptor ``last_words``; None where nobody would replace this process, which then hangs.
    """
    if seconds is None or threading.current_thread() is not threading.main_thread() or sys.platform == "win32":
        yield
        return

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise DeadlineExceededError(f"not done after {seconds:g} s, the limit of --msprobe-timeout")

    former = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    if last_words is not None:
        faulthandler.dump_traceback_later(seconds + _GRACE_SECONDS, exit=True, file=last_words)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
        if last_words is not None:
            faulthandler.cancel_dump_traceback_later()
