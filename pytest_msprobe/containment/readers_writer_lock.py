"""Running an item alone: no other worker of the run runs one meanwhile."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path


class ReadersWriterLock:
    """Lets a run's items run together, or one alone.

    A readers-writer lock of two files; the system frees the locks of a process that dies. A writer holds
    the door, so that the others, who pass it one after another, cannot keep it waiting for ever.
    """

    def __init__(self, folder: Path, make_space: Callable[[], None]) -> None:
        self._door = _open(folder / "door")
        self._lock = _open(folder / "lock")
        self._make_space = make_space

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Run beside others. Memory kept for later is given up where somebody waits to be alone."""
        fcntl.flock(self._door, fcntl.LOCK_SH)
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        fcntl.flock(self._door, fcntl.LOCK_UN)
        try:
            yield
        finally:
            if self._somebody_waits():
                self._make_space()
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Run when nobody else does."""
        fcntl.flock(self._door, fcntl.LOCK_EX)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            fcntl.flock(self._door, fcntl.LOCK_UN)

    def _somebody_waits(self) -> bool:
        try:
            fcntl.flock(self._door, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._door, fcntl.LOCK_UN)
        return False


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
