"""Tensors written to ``.pt`` files."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from msprobe_hooks.recording.tensor_files import TensorFiles


class TorchTensorFiles(TensorFiles):
    """Saves tensors with ``torch.save``."""

    def copy(self, tensor: Tensor) -> Tensor:
        """Return a contiguous copy without a graph."""
        return tensor.detach().clone(memory_format=torch.contiguous_format)

    def size(self, copy: Tensor) -> int:
        """Return the bytes of the elements."""
        return copy.numel() * copy.element_size()

    def write(self, copy: Tensor, path: Path) -> None:
        """Write a ``.pt`` file."""
        torch.save(copy, path)
