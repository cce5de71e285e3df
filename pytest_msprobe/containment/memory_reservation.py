"""Large calls are let in by the memory that is really free, less what other workers have reserved."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pytest_msprobe.containment.deadline import paused
from pytest_msprobe.engine.replay.trials.memory_budget import SHARE, admit_at_once, refusal
from pytest_msprobe.engine.values.system_memory import free_bytes, total_bytes

# Choices: while another worker has a large call running, and where none has, as it may still be giving memory back.
_PATIENCE_SECONDS = 60.0
_SHORT_PATIENCE_SECONDS = 2.0
_PAUSE_SECONDS = 0.1  # a choice: ten looks at the free memory a second


class MemoryReservation:
    """Admits the calls of one worker; what is admitted counts as taken until it is released or the process ends.

    A reservation is a locked file. It counts in full although part of it may be in use already: that makes others wait
    longer, never overcommits. In the folder of the run::

        reservations       locked by who counts and takes
        reservation-gw0    "4294967296", locked: worker gw0 has taken 4 GiB
        reservation-gw1    "1073741824", not locked: gw1 has released it, or has died
    """

    def __init__(self, folder: Path, worker: str, patience: float = _PATIENCE_SECONDS) -> None:
        self._folder = folder
        self._own = folder / f"reservation-{worker}"
        self._reservation = _open(self._own)
        self._counter = _open(folder / "reservations")
        self._patience = patience

    def admit(self, needed: int, free: Callable[[], float]) -> None:
        """Wait until so many bytes are free and reserve them for this worker.

        Raises Skip, with the sizes, where they do not get free in time, or could not even if this worker were alone.
        """
        if free is not free_bytes:
            # A card is rarely shared, and its own driver says best what is free.
            self._wait(lambda: needed <= free() * SHARE)
            admit_at_once(needed, free)
            return
        if needed > total_bytes() * SHARE:
            raise refusal(needed, free())
        if not self._wait(lambda: self._take(needed)):
            raise refusal(needed, free() - self._reserved_by_others())

    def release(self) -> None:
        """Release the reservation."""
        fcntl.flock(self._reservation, fcntl.LOCK_UN)

    def _wait(self, fits: Callable[[], bool]) -> bool:
        if fits():
            return True
        started = time.monotonic()
        with paused():
            while self._others() and time.monotonic() < started + self._current_patience():
                time.sleep(_PAUSE_SECONDS)
                if fits():
                    return True
        return False

    def _current_patience(self) -> float:
        return self._patience if self._reserved_by_others() else min(self._patience, _SHORT_PATIENCE_SECONDS)

    def _take(self, needed: int) -> bool:
        with _locked(self._counter):
            if needed > (free_bytes() - self._reserved_by_others()) * SHARE:
                return False
            os.pwrite(self._reservation, b"%-20d" % needed, 0)
            fcntl.flock(self._reservation, fcntl.LOCK_EX)
            return True

    def _others(self) -> list[Path]:
        return [path for path in self._folder.glob("reservation-*") if path != self._own]

    def _reserved_by_others(self) -> int:
        return sum(_reserved(path) for path in self._others())


def _reserved(path: Path) -> int:
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return int(os.pread(descriptor, 20, 0) or 0)
    finally:
        os.close(descriptor)
    return 0


@contextlib.contextmanager
def _locked(descriptor: int) -> Iterator[None]:
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
