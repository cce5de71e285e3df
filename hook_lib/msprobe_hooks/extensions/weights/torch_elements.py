"""The digits of torch tensors, made where the tensors are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from msprobe_hooks.extensions.weights.digest import Digest, digest
from msprobe_hooks.extensions.weights.weights_file import is_stack

# 2 MiB of float64, which a core's cache holds; devices take longer to begin than to multiply.
_BLOCK, _DEVICE_BLOCK = 1 << 18, 1 << 25


class TorchElements:
    """The elements of a matrix [rows, columns]."""

    def __init__(self, matrix: Tensor) -> None:
        self._matrix = matrix
        self._digit = torch.int16 if matrix.element_size() > 1 else torch.int8
        self.rows, self.columns = matrix.shape
        self.digits = max(matrix.element_size() // 2, 1)
        self.block = _BLOCK if matrix.is_cpu else _DEVICE_BLOCK

    def read(self, start: int, stop: int) -> Tensor:
        """Return the digits of some rows in float64."""
        return self._matrix[start:stop].contiguous().view(self._digit).double()

    def place(self, numbers: NDArray[np.float64]) -> Tensor:
        """Return numbers where the matrix is."""
        return torch.from_numpy(numbers).to(self._matrix.device)

    def fetch(self, arrays: Sequence[Tensor]) -> NDArray[np.int64]:
        """Return numbers on the host."""
        found: NDArray[np.int64] = torch.cat(list(arrays)).long().cpu().numpy()
        return found


class RoundedElements(TorchElements):
    """The elements of a matrix after they are rounded to bfloat16."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__(matrix)
        self._digit, self.digits = torch.int16, 1

    def read(self, start: int, stop: int) -> Tensor:
        """Return the digits of some rows in float64."""
        return self._matrix[start:stop].to(torch.bfloat16).contiguous().view(torch.int16).double()


def matrices(tensor: Tensor) -> Iterator[Tensor]:
    """Yield the matrices of a tensor: three axes are several, fewer a column, more are flattened behind the first."""
    if is_stack(tensor.shape):
        yield from tensor
    elif tensor.dim() < 2:
        yield tensor.reshape(-1, 1)
    else:
        yield tensor.flatten(1)


@torch.no_grad()
def tensor_digests(tensor: Tensor) -> list[Digest]:
    """Compute the digests of each matrix of a plain tensor, on its device where that has float64."""
    return [digest(TorchElements(each)) for each in matrices(_readable(tensor))]


@torch.no_grad()
def rounded_digests(tensor: Tensor) -> list[Digest]:
    """Compute the digests that the tensor has when it is rounded to bfloat16."""
    return [digest(RoundedElements(each)) for each in matrices(_readable(tensor))]


def _readable(tensor: Tensor) -> Tensor:
    tensor = tensor.detach().resolve_conj().resolve_neg()
    # These multiply in float64; NPUs do not.
    return tensor if tensor.device.type in ("cpu", "cuda", "xpu") else tensor.cpu()
