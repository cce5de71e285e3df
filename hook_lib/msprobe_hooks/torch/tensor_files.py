"""Tensors written to ``.pt`` files."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from msprobe_hooks.recording.tensor_files import TensorFiles

_SPARSE = frozenset({torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc})


class TorchTensorFiles(TensorFiles):
    """Saves tensors with ``torch.save``."""

    def copy(self, tensor: Tensor) -> Tensor:
        """Return a copy without a graph, contiguous where the layout has strides."""
        tensor = tensor.detach()
        if tensor.layout is not torch.strided:
            return tensor.clone()
        return tensor.clone(memory_format=torch.contiguous_format)

    def size(self, copy: Tensor) -> int:
        """Return the bytes of the elements."""
        return (copy._nnz() if copy.layout in _SPARSE else copy.numel()) * copy.element_size()

    def write(self, copy: Tensor, path: Path) -> None:
        """Write a ``.pt`` file."""
        torch.save(copy, path)
