"""Tensors written to ``.npy`` files by a background thread, with a bound on the bytes that wait."""

from __future__ import annotations

import queue
import threading
from pathlib import Path

import numpy as np

from msprobe_hooks.errors import RecordingError
from msprobe_hooks.mindspore.values import Array

_WAITING_FILES = 64


class TensorFiles:
    """Saves arrays. A save returns at once unless too much waits to be written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._queue: queue.Queue[tuple[Array, str] | None] = queue.Queue(_WAITING_FILES)
        self._failure: OSError | None = None
        self.bytes = 0
        self._thread = threading.Thread(target=self._write_all, name="msprobe tensor files", daemon=True)
        self._thread.start()

    def save(self, tensor: Array, name: str) -> None:
        """Take a copy of an array and have it written."""
        self._queue.put((np.array(tensor), name))

    def close(self) -> None:
        """Wait until everything is written. Raises RecordingError where a file could not be."""
        self._queue.put(None)
        self._thread.join()
        if self._failure is not None:
            raise RecordingError(f"{self._folder}: a tensor cannot be written: {self._failure}")

    def _write_all(self) -> None:
        while (item := self._queue.get()) is not None:
            array, name = item
            try:
                if self._failure is None:
                    np.save(self._folder / name, array, allow_pickle=False)
                    self.bytes += array.nbytes
            except OSError as error:
                self._failure = error
