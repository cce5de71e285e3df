"""Checksums of torch tensors; None where there are no values to read."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from msprobe_hooks.recording import checksums
from msprobe_hooks.recording.checksums import Bytes, ChecksumThread
from msprobe_hooks.recording.statistics import Statistics
from msprobe_hooks.torch.statistics import is_readable

# Those that numpy has as well.
_IN_NUMPY = frozenset(
    {
        torch.float64, torch.float32, torch.float16, torch.complex128, torch.complex64,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    }
)  # fmt: skip


def take_crc32(tensor: Tensor, statistics: Statistics, thread: ChecksumThread) -> None:
    """Have the CRC-32 of a tensor's bytes become the statistics' checksum, of a device's by the thread."""
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
    if tensor.dtype in _IN_NUMPY:
        # A third of the calls of torch that any dtype takes.
        array: Bytes = tensor.contiguous().numpy(force=True).reshape(-1).view(np.uint8)
        return array
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    raw: Bytes = flat.view(torch.uint8).cpu().numpy()
    return raw
