"""Tensors written to files by a background thread, with a bound on the bytes that wait."""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Any

from msprobe_hooks.errors import RecordingError

_WAITING_BYTES = 256 * 2**20


class TensorFiles(ABC):
    """Saves tensors as files of one folder. A save returns at once unless too much waits to be written.

    A framework says how a tensor is copied, measured and written. ``bytes`` counts what was written, ``refused`` are
    the names of tensors that no file can hold, with the reason.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._queue: queue.Queue[tuple[Any, int, str] | None] = queue.Queue()
        self._room = threading.Condition()
        self._waiting = 0
        self._failure: OSError | RuntimeError | None = None
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

    def save(self, tensor: Any, name: str) -> None:
        """Take a copy of a tensor and have it written. The caller has turned gradients and overrides off."""
        copy = self.copy(tensor)
        size = self.size(copy)
        with self._room:
            while self._waiting > 0 and self._waiting + size > _WAITING_BYTES:
                self._room.wait()
            self._waiting += size
        self._queue.put((copy, size, name))

    def wait(self) -> None:
        """Wait until everything is written. Raises RecordingError where a file could not be."""
        self._queue.join()
        if self._failure is not None:
            raise RecordingError(f"{self._folder}: a tensor cannot be written: {self._failure}")

    def close(self) -> None:
        """Wait, and end the thread. Raises RecordingError as ``wait`` does."""
        self._queue.put(None)
        self._thread.join()
        self.wait()

    def _write_all(self) -> None:
        while (item := self._queue.get()) is not None:
            copy, size, name = item
            try:
                if self._failure is None:
                    self.write(copy, self._folder / name)
                    self.bytes += size
            except Exception as error:
                # torch reports a full disk as a plain RuntimeError; anything else is the tensor's own matter.
                if isinstance(error, (OSError, RuntimeError)) and not isinstance(error, NotImplementedError):
                    self._failure = error
                else:
                    self.refused.append((name, error))
                    with suppress(OSError, ValueError):
                        (self._folder / name).unlink()
            finally:
                with self._room:
                    self._waiting -= size
                    self._room.notify_all()
                self._queue.task_done()
        self._queue.task_done()
