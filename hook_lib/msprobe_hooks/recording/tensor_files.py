"""Tensors written to files by a background thread, with a bound on the bytes that wait."""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from msprobe_hooks.errors import DiskError
from msprobe_hooks.recording.summary import described

# A choice: what copies may take of the host's memory while they wait; beyond it the program waits for the disk.
_WAITING_BYTES = 64 * 2**20


class TensorFiles(ABC):
    """Saves tensors as files of one folder. A save returns at once unless too much waits to be written.

    A framework says how a tensor is copied, measured and written. ``bytes`` counts what was written, ``refused`` are
    the names of tensors that no file can hold, with the reason.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._queue: queue.Queue[tuple[Callable[[], None], int] | None] = queue.Queue()
        self._room = threading.Condition()
        self._waiting = 0
        self._queued = 0
        self._held_up = 0
        self._failure: Exception | None = None
        self._is_closed = False
        self.refused: list[tuple[str, Exception]] = []
        self.bytes = 0
        self._thread = threading.Thread(target=self._write_all, name="msprobe tensor files", daemon=True)
        self._thread.start()

    @abstractmethod
    def copy(self, tensor: Any) -> Any:
        """Return a copy that the program cannot change."""

    @abstractmethod
    def size(self, copy: Any) -> int:
        """Return how many bytes the values of a copy take."""

    @abstractmethod
    def write(self, copy: Any, path: Path) -> None:
        """Write a file. May raise what it will where that is not possible."""

    def save(self, tensor: Any, name: str) -> str:
        """Take a copy of a tensor, have it written and return what its record says of the file: the name.

        The caller has turned gradients and overrides off.
        """
        copy = self.copy(tensor)
        size = self.size(copy)
        self.queue(partial(self.attempt, partial(self.write, copy, self.folder / name), size, name), size)
        self.wait_for_room()
        return name

    def queue(self, write: Callable[[], None], size: int) -> None:
        """Queue a write of so many bytes for the thread, after all that was queued before.

        Once the files are closed nothing is written.
        """
        with self._room:
            if self._is_closed:
                return
            self._waiting += size
            self._queued += 1
            self._queue.put((write, size))

    def wait_for_room(self) -> None:
        """Wait while more bytes wait to be written than may, except those of a single write.

        The caller holds no lock: a signal handler that interrupts this wait may stop the recording.
        """
        if self._waiting <= _WAITING_BYTES:
            return
        with self._room:
            self._held_up += 1
            self._room.wait_for(lambda: self._queued <= 1 or self._waiting <= _WAITING_BYTES)
            self._held_up -= 1

    def holds_up(self, size: int) -> bool:
        """Return whether the program waits for room, or soon may: so much waits next to ``size`` bytes in the making.

        What the thread can leave out then costs the program time.
        """
        return self._held_up > 0 or self._waiting - size > _WAITING_BYTES // 2

    def flush(self, seconds: float = -1) -> None:  # noqa: B027
        """Hand over what waits to be written together with more; nothing does where each tensor has its own turn.

        ``seconds`` is how long this may wait for a save in another thread; a negative number sets no limit.
        """

    def wait(self) -> None:
        """Wait until everything is written. Raises DiskError where a file could not be."""
        self.flush()
        self._queue.join()
        self._check()

    def close(self) -> None:
        """Wait, and end the thread. Raises DiskError as ``wait`` does."""
        self.flush()
        with self._room:
            # What another thread saves from now on would wait for a thread that has ended.
            self._is_closed = True
            self._queue.put(None)
        self._thread.join()
        self._check()

    def attempt(self, write: Callable[[], None], size: int, name: str) -> None:
        """Write in the thread. A disk that refuses ends all writing, any other failure is the matter of ``name``."""
        if self._failure is not None:
            return
        try:
            write()
            self.bytes += size
        except Exception as error:
            # torch reports a full disk as a plain RuntimeError; anything else is the tensor's own matter.
            if isinstance(error, (OSError, RuntimeError)) and not isinstance(error, NotImplementedError):
                self._failure = error
            else:
                self.refused.append((name, error))
            # Half a file is worth nothing, and its room is.
            with suppress(OSError, ValueError):
                (self.folder / name).unlink()

    def _check(self) -> None:
        if self._failure is not None:
            raise DiskError(f"{self.folder}: a tensor cannot be written: {described(self._failure)}")

    def _write_all(self) -> None:
        while (item := self._queue.get()) is not None:
            write, size = item
            try:
                write()
            except Exception as error:
                # The program waits for this thread.
                self._failure = self._failure or error
            # What a copy takes is free again before the next one is waited for.
            del item, write
            with self._room:
                self._waiting -= size
                self._queued -= 1
                self._room.notify_all()
            self._queue.task_done()
        self._queue.task_done()
