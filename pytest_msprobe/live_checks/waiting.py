"""The memory of calls that wait for their gradients."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable

import torch

from pytest_msprobe.engine.values.strides import span
from pytest_msprobe.live_checks.observed import Awaiting


class WaitingMemory:
    """The bytes that copies for calls may take until their gradients come, or can come no longer.

    What is reserved for a call is free again when nothing holds what is kept of it any longer.
    """

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._lock = threading.RLock()

    def fits(self, size: int) -> bool:
        """Tell whether so many bytes are left."""
        return size <= self._free

    def reserve(self, kept: Awaiting, size: int, end: Callable[[], None]) -> None:
        """Reserve so many bytes while ``kept`` exists; ``end`` is called when it does no longer."""
        self._add(-size)

        def free() -> None:
            self._add(size)
            end()

        weakref.finalize(kept, free).atexit = False

    def _add(self, size: int) -> None:
        with self._lock:
            self._free += size


def bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes that copies of tensors take which are laid out alike."""
    return sum(_elements(tensor) * tensor.element_size() for tensor in tensors)


def _elements(tensor: torch.Tensor) -> int:
    return span(tensor.shape, tensor.stride()) if tensor.layout is torch.strided else tensor.numel()
