"""Overflow as the first generation of cards has it: saturated, and noted in a status that is asked for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from tests.support.cann.kernels import memory

#: Numbers of a status; the first is the one that says whether anything overflowed.
_COUNT = 8
_overflowed: set[int] = set()


def saturate(results: Any) -> None:
    """Replace each infinity by the dtype's largest number, and note that it was there."""
    for result in tree_leaves(results):
        if isinstance(result, Tensor) and result.is_floating_point() and result.dtype.itemsize > 1:
            host = memory.seen_by_host(result)
            infinite = host.isinf()
            if infinite.any():
                _overflowed.add(result.device.index)
                largest = torch.finfo(host.dtype).max
                host.copy_(torch.where(infinite, host.clamp(-largest, largest), host))


def npu_alloc_float_status(self: Tensor) -> Tensor:
    """Return room for a status."""
    return torch.zeros(_COUNT, dtype=torch.float32, device=self.device)


def npu_get_float_status(self: Tensor) -> Tensor:
    """Write the status of the card into its room."""
    seen = memory.seen_by_host(self)
    seen[0] = float(self.device.index in _overflowed)
    return self


def npu_clear_float_status(self: Tensor) -> Tensor:
    """Forget that anything overflowed."""
    _overflowed.discard(self.device.index)
    memory.seen_by_host(self).zero_()
    return self
