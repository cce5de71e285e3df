"""Tensors written to ``.npy`` files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from msprobe_hooks.recording.array_statistics import Array
from msprobe_hooks.recording.tensor_files import TensorFiles
from msprobe_hooks.recording.vectored_write import write_npy


class MindSporeTensorFiles(TensorFiles):
    """Saves the values of tensors as numpy does."""

    def copy(self, tensor: Array) -> Array:
        """Return a copy: a tensor's array shares its memory."""
        return np.array(tensor)

    def size(self, copy: Array) -> int:
        """Return the bytes of the elements."""
        return copy.nbytes

    def write(self, copy: Array, path: Path) -> None:
        """Write a ``.npy`` file."""
        with path.open("wb") as file:
            write_npy(file, copy)
