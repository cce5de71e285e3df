"""Tensors that wait to be written together.

Those of a CPU are copied into one buffer that is used again and again: to take fresh memory for each of them costs more
than to copy and to write it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

#: A batch of this size is written.
BATCH_BYTES: Final = 16 * 2**20

# What is larger has a copy of its own, so that a buffer is never left nearly empty.
_LARGE_BYTES = BATCH_BYTES // 4
_ALIGNMENT = 64
_KEPT_BUFFERS = 4


class Buffers:
    """Memory for batches, kept from step to step; threads may share it."""

    def __init__(self) -> None:
        self._free: list[NDArray[np.uint8]] = []

    def take(self) -> NDArray[np.uint8]:
        """Return the buffer that was used last, which caches know best, or a new one."""
        try:
            return self._free.pop()
        except IndexError:
            return np.empty(BATCH_BYTES, np.uint8)

    def give(self, buffer: NDArray[np.uint8]) -> None:
        """Take a buffer back."""
        if len(self._free) < _KEPT_BUFFERS:
            self._free.append(buffer)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A tensor of ``size`` bytes: its elements lie in a buffer, or are a copy, maybe on a device."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    size: int
    values: memoryview | Tensor

    def elements(self) -> memoryview:
        """Return the contiguous elements as single bytes, on the host."""
        if isinstance(self.values, memoryview):
            return self.values
        flat = self.values.cpu().reshape(-1).view(torch.uint8)
        return flat.numpy().data


@dataclass(frozen=True, slots=True)
class SavedBefore:
    """A tensor that another one, saved as ``former`` in the same folder, is equal to in every respect."""

    name: str
    former: str


class Batch:
    """Tensors whose elements wait in one buffer.

    ``number`` is that of the batch in its folder, ``size`` how many bytes wait, ``entries`` are in order.
    """

    def __init__(self, buffer: NDArray[np.uint8], number: int) -> None:
        self.buffer = buffer
        self.number = number
        self.size = 0
        self.entries: list[Waiting | SavedBefore] = []
        self._tensor = torch.from_numpy(buffer)
        self._bytes = buffer.data
        self._end = 0

    def has_room(self, size: int) -> bool:
        """Return whether a tensor of so many bytes still belongs to this batch."""
        return not self.entries or self.size + size <= BATCH_BYTES

    def add(self, name: str, tensor: Tensor, size: int) -> None:
        """Copy a tensor with a dtype that torch copies and strides, of ``size`` bytes."""
        self.size += size
        shape, dtype = tuple(tensor.shape), tensor.dtype
        start = self._end + -self._end % _ALIGNMENT
        end = start + size
        if not tensor.is_cpu or size > _LARGE_BYTES or end > BATCH_BYTES:
            copy = tensor.clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg()
            self.entries.append(Waiting(name, dtype, shape, size, copy))
            return
        if size:
            self._tensor[start:end].view(dtype).view(shape).copy_(tensor)
        self._end = end
        self.entries.append(Waiting(name, dtype, shape, size, self._bytes[start:end]))
