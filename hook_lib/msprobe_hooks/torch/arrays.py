"""Tensors as arrays of numpy, without a trace on the tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch._C import _to_dlpack


class _Lent:
    """A tensor as `np.from_dlpack` takes it in every version of numpy."""

    __slots__ = ("_tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def __dlpack__(self, **_: object) -> Any:
        return _to_dlpack(self._tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def as_bytes(tensor: Tensor) -> NDArray[np.uint8]:
    """Return the bytes of a contiguous tensor on the host, neither conjugated nor negated, to be read and dropped.

    After ``Tensor.numpy()`` torch resizes a tensor's memory no more, and raises where the program does, as FSDP does.
    """
    data: NDArray[Any] = np.from_dlpack(_Lent(tensor.detach().reshape(-1).view(torch.uint8)))
    return data
