"""What is told of a stored tensor where it is read without torch."""

from __future__ import annotations

import msgspec


class StoredTensor(msgspec.Struct, frozen=True):
    """What a tensor is: dtype (``torch.float32``), shape, and strides in elements."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class TensorFileError(Exception):
    """A stored tensor cannot be used; the text names the file, the tensor and the problem."""
