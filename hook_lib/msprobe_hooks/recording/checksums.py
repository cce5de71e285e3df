"""Checksums of a tensor's contiguous bytes: CRC-32 (which msprobe calls md5) and a 64-bit XOR."""

from __future__ import annotations

import zlib
from typing import TypeAlias

import numpy as np

Bytes: TypeAlias = np.ndarray[tuple[int], np.dtype[np.uint8]]


def crc32(raw: Bytes) -> str:
    """Return the CRC-32 as 8 hexadecimal digits."""
    return f"{zlib.crc32(raw.data):08x}"


def xor64(raw: Bytes) -> str:
    """Return the bytes, zero-padded to a multiple of 8, folded as 64-bit words by XOR, as ``0x`` and 16 digits."""
    padded = np.pad(raw, (0, -raw.size % 8))
    return f"0x{int(np.bitwise_xor.reduce(padded.view(np.uint64))):016x}"
