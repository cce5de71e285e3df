"""Lock under which an item runs alone: no other worker of the run runs one meanwhile."""

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

    def shared(self) -> _Shared:
        """Run in parallel to others, within the context that this returns.

        Memory kept for later is given up where somebody waits to be alone.
        """
        return _Shared(self)

    def enter_beside_others(self) -> None:
        """Wait until none runs alone, or waits to."""
        fcntl.flock(self._door, fcntl.LOCK_SH)
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        fcntl.flock(self._door, fcntl.LOCK_UN)

    def release_shared(self) -> None:
        """Release the lock, with memory given up for those who wait."""
        try:
            if self._somebody_waits():
                self._make_space()
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Run when no other does."""
        fcntl.flock(self._door, fcntl.LOCK_EX)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            fcntl.flock(self._door, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the lock's files."""
        os.close(self._door)
        os.close(self._lock)

    def _somebody_waits(self) -> bool:
        try:
            fcntl.flock(self._door, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._door, fcntl.LOCK_UN)
        return False


class _Shared(contextlib.AbstractContextManager[None]):
    """The context of an item that runs in parallel to others. Not a generator's: every item has one."""

    def __init__(self, lock: ReadersWriterLock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        self._lock.enter_beside_others()

    def __exit__(self, *_: object) -> None:
        self._lock.release_shared()


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
