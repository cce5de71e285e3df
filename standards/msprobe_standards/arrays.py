"""Tensors as arrays of numpy, without a trace on the tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch._C import _to_dlpack

# What numpy takes over DLPack as another dtype, whichever versions of numpy and torch.
_READ_AS = {
    torch.bool: (torch.uint8, np.bool_),
    torch.uint16: (torch.int16, np.uint16),
    torch.uint32: (torch.int32, np.uint32),
    torch.uint64: (torch.int64, np.uint64),
}


class _Lent:
    """A tensor as `np.from_dlpack` takes it in every version of numpy."""

    __slots__ = ("_tensor",)

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __dlpack__(self, **_: object) -> Any:
        return _to_dlpack(self._tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def as_array(tensor: torch.Tensor) -> NDArray[Any]:
    """Return an array on the memory of a plain CPU tensor of one of numpy's dtypes, to be read and dropped.

    After ``Tensor.numpy()`` torch resizes that memory no more, and raises where the program does, as FSDP does.
    """
    read_as = _READ_AS.get(tensor.dtype)
    if read_as is None:
        return np.from_dlpack(_Lent(tensor))
    return np.from_dlpack(_Lent(tensor.view(read_as[0]))).view(read_as[1])
