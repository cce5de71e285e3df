"""The values of a MindSpore tensor on the host, and checksums of them."""

from __future__ import annotations

import mindspore
import numpy as np
from mindspore import Tensor

from msprobe_hooks.recording import checksums
from msprobe_hooks.recording.array_statistics import Array
from msprobe_hooks.recording.checksums import Bytes


def host(tensor: Tensor) -> Array:
    """Return a tensor's values as an array; bfloat16, which numpy lacks, as float32."""
    return np.asarray(tensor.float().asnumpy() if tensor.dtype == mindspore.bfloat16 else tensor.asnumpy())


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors of one shape and dtype hold the same bits."""
    return bool(np.array_equal(_raw(one.asnumpy()), _raw(other.asnumpy())))


def crc32(array: Array) -> str:
    """Return the CRC-32 of the values' bytes."""
    return checksums.crc32(_raw(array))


def xor64(array: Array) -> str:
    """Return the 64-bit XOR of the values' bytes."""
    return checksums.xor64(_raw(array))


def _raw(array: Array) -> Bytes:
    return np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
