"""Functions of one tensor that are made with a setting."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def softmax(x: Tensor, *, axis: int | Sequence[int]) -> Tensor:
    """Return exponentials divided by their sum along an axis."""
    return torch.softmax(x, _one(axis))


def log_softmax(x: Tensor, *, axis: int | Sequence[int]) -> Tensor:
    """Return the logarithm of softmax along an axis."""
    return torch.log_softmax(x, _one(axis))


def _one(axis: int | Sequence[int]) -> int:
    if isinstance(axis, int):
        return axis
    if len(axis) != 1:
        raise NotImplementedError("softmax along several axes has no golden definition")
    return axis[0]


def gelu(x: Tensor) -> Tensor:
    """Return GeLU by its approximation with tanh, which is what the primitive promises."""
    return F.gelu(x, approximate="tanh")


def elu(x: Tensor, *, alpha: float) -> Tensor:
    """Return the input where it is positive, ``alpha`` (exp(x) - 1) otherwise."""
    return F.elu(x, alpha)


def dropout(x: Tensor, *, p: float) -> tuple[Tensor, Tensor]:
    """Return the input and the mask with which all is kept, which is all that two runs agree on."""
    if p != 1:
        raise NotImplementedError("what dropout draws has no golden definition")
    return x.clone(), torch.ones_like(x)


def add_n(*tensors: Tensor | Sequence[Tensor]) -> Tensor:
    """Return the sum of tensors, given one by one or as one sequence."""
    summands = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    return torch.stack(list(summands)).sum(0)  # type: ignore[arg-type]
