"""Checksums of torch tensors; None where there are no values to read."""

from __future__ import annotations

from torch import Tensor

from msprobe_hooks.recording import checksums
from msprobe_hooks.recording.checksums import Bytes, ChecksumThread
from msprobe_hooks.recording.statistics import Statistics
from msprobe_hooks.torch.arrays import as_bytes
from msprobe_hooks.torch.statistics import is_readable


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
    return as_bytes(flat if flat.is_cpu else flat.cpu())
