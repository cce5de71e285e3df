"""Tensors written to files by a background thread, with a bound on the bytes that wait."""

from __future__ import annotations

import queue
import threading
from pathlib import Path

import torch
from torch import Tensor

from msprobe_hooks.errors import RecordingError

_WAITING_BYTES = 256 * 2**20


class TensorFiles:
    """Saves tensors as ``.pt`` files. A save returns at once unless too much waits to be written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._queue: queue.SimpleQueue[tuple[Tensor, str] | None] = queue.SimpleQueue()
        self._room = threading.Condition()
        self._waiting = 0
        self._failure: OSError | RuntimeError | None = None
        self.bytes = 0
        self._thread = threading.Thread(target=self._write_all, name="msprobe tensor files", daemon=True)
        self._thread.start()

    def save(self, tensor: Tensor, name: str) -> None:
        """Take a copy of a tensor and have it written. The caller has turned gradients and overrides off."""
        copy = tensor.detach().clone(memory_format=torch.contiguous_format)
        size = copy.numel() * copy.element_size()
        with self._room:
            while self._waiting > 0 and self._waiting + size > _WAITING_BYTES:
                self._room.wait()
            self._waiting += size
        self._queue.put((copy, name))

    def close(self) -> None:
        """Wait until everything is written. Raises RecordingError where a file could not be."""
        self._queue.put(None)
        self._thread.join()
        if self._failure is not None:
            raise RecordingError(f"{self._folder}: a tensor cannot be written: {self._failure}")

    def _write_all(self) -> None:
        while (item := self._queue.get()) is not None:
            tensor, name = item
            size = tensor.numel() * tensor.element_size()
            try:
                if self._failure is None:
                    torch.save(tensor, self._folder / name)
                    self.bytes += size
            except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
                self._failure = error
            with self._room:
                self._waiting -= size
                self._room.notify_all()
