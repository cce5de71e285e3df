"""Checksums of torch tensors; None where there are no values to read."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._C import _to_dlpack

from msprobe_hooks.recording import checksums
from msprobe_hooks.recording.checksums import Bytes, ChecksumThread
from msprobe_hooks.recording.statistics import Statistics
from msprobe_hooks.torch.statistics import is_readable

# Those that numpy takes over DLPack, whichever its version.
_IN_NUMPY = frozenset(
    {
        torch.float64, torch.float32, torch.float16, torch.complex128, torch.complex64,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
    }
)  # fmt: skip


class _Lent:
    """A tensor on the host as numpy takes it.

    ``Tensor.numpy()`` would keep the program from resizing the tensor's memory ever after.
    """

    __slots__ = ("_tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def __dlpack__(self, **_: object) -> Any:
        return _to_dlpack(self._tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def take_crc32(tensor: Tensor, statistics: Statistics, thread: ChecksumThread) -> None:
    """Set the statistics' checksum to the CRC-32 of a tensor's bytes, of a device's by the thread."""
    if not is_readable(tensor):
        return
    if tensor.is_cpu:
        statistics.checksum = checksums.crc32(_raw(tensor))
    else:
        thread.take(_raw(tensor), statistics)


def xor64(tensor: Tensor) -> str | None:
    """Return the 64-bit XOR of a tensor's bytes."""
    return checksums.xor64(_raw(tensor)) if is_readable(tensor) else None


def _raw(tensor: Tensor) -> Bytes:
    """Return the contiguous bytes of a tensor on the host; of a CPU's contiguous tensor they are its own memory."""
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    flat = tensor.contiguous()
    if flat.dtype not in _IN_NUMPY:
        flat = flat.reshape(-1).view(torch.uint8)
    array: Bytes = np.from_dlpack(_Lent(flat if flat.is_cpu else flat.cpu())).reshape(-1).view(np.uint8)
    return array
