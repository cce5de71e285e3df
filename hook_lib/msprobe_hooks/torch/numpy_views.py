"""Tensors on the host as arrays of numpy that share their memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor
from torch._C import _to_dlpack


class _Lent:
    """A tensor on the host as numpy takes it.

    ``Tensor.numpy()`` would keep the program from resizing the tensor's memory ever after.
    """

    __slots__ = ("_tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def __dlpack__(self, **_: object) -> Any:
        return _to_dlpack(self._tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def numpy_view(tensor: Tensor) -> Any:
    """Return a tensor's own memory as an array; its dtype must be one of numpy's."""
    return np.from_dlpack(_Lent(tensor))
