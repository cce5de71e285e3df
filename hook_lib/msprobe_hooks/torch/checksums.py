"""Checksums of a tensor's bytes: CRC-32 (which msprobe calls md5) and a 64-bit XOR."""

from __future__ import annotations

import zlib

import numpy as np
import torch
from torch import Tensor

from msprobe_hooks.torch.statistics import is_readable


def crc32(tensor: Tensor) -> str | None:
    """Return the CRC-32 of the contiguous raw bytes as 8 hexadecimal digits, None where there are no values to read."""
    raw = _raw(tensor)
    return None if raw is None else f"{zlib.crc32(raw.data):08x}"


def xor64(tensor: Tensor) -> str | None:
    """Return the bytes, zero-padded to a multiple of 8, folded as 64-bit words by XOR, as ``0x`` and 16 digits."""
    raw = _raw(tensor)
    if raw is None:
        return None
    padded = np.pad(raw, (0, -raw.size % 8))
    return f"0x{int(np.bitwise_xor.reduce(padded.view(np.uint64))):016x}"


def _raw(tensor: Tensor) -> np.ndarray[tuple[int], np.dtype[np.uint8]] | None:
    if not is_readable(tensor):
        return None
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    raw: np.ndarray[tuple[int], np.dtype[np.uint8]] = flat.view(torch.uint8).cpu().numpy()
    return raw
