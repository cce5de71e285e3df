"""A card that computes one call wrong: one bit of one result is flipped, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class FlippedBit(TorchDispatchMode):
    """Flips a bit of the first element in a call's result: call ``number`` of an operator, from 1, as ``mm``.

    Of an operator that returns nothing, in the first tensor that it was called with.
    """

    def __init__(self, operator: str, number: int, bit: int = 27) -> None:
        super().__init__()
        self.calls = 0
        self._operator, self._number, self._bit = operator, number, bit

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ == self._operator:
            self.calls += 1
            if self.calls == self._number:
                written: Any = args if result is None else result
                while not isinstance(written, torch.Tensor):
                    written = written[0]
                # Looking at the whole of a distributed tensor would communicate.
                written = getattr(written, "_local_tensor", written)
                bits = torch.int16 if written.element_size() == 2 else torch.int32
                written.view(-1)[:1].view(bits).bitwise_xor_(1 << self._bit)
        return result
