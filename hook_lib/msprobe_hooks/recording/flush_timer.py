"""A thread that has what waits written from time to time, also while the program that is recorded does nothing."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

# Seconds. A choice: a write that takes longer is left to its thread, which is a daemon.
_LONGEST_WAIT = 1.0


class FlushTimer:
    """Calls a method each time so many ``seconds`` have passed, in a daemon thread, until ``end``.

    It holds no reference to the method's object, and ends with it.
    """

    def __init__(self, flush: Callable[[], None], seconds: float) -> None:
        """Start the thread. Raises RuntimeError where the system has none left, or the interpreter is ending."""
        self._flush = weakref.WeakMethod(flush)
        self._seconds = seconds
        # A plain lock: an event has one inside that a forked child could inherit locked.
        self._is_running = threading.Lock()
        self._is_running.acquire()
        self._thread = threading.Thread(target=self._run, name="msprobe flush timer", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End the thread, once a call that is being made has returned."""
        self._is_running.release()
        # A signal handler may end a recording while its own thread holds what that call waits for.
        self._thread.join(_LONGEST_WAIT)

    def _run(self) -> None:
        while not self._is_running.acquire(timeout=self._seconds):
            flush = self._flush()
            if flush is None:
                return
            flush()
            del flush
