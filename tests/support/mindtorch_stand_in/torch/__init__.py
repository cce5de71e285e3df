"""What MindTorch is to a program: a package with torch's names whose tensors and functions are MindSpore's."""

from __future__ import annotations

from typing import Any

import mindspore
from mindspore import Tensor, mint

from . import nn

__all__ = ["Tensor", "exp", "matmul", "max", "nn", "tensor"]

float32 = mindspore.float32


def tensor(data: Any) -> Tensor:
    return Tensor(data, mindspore.float32)


def exp(input: Tensor) -> Tensor:  # noqa: A002
    return mint.exp(input)


def matmul(input: Tensor, other: Tensor) -> Tensor:  # noqa: A002
    return mint.matmul(input, other)


def max(input: Tensor, dim: int) -> tuple[Tensor, Tensor]:  # noqa: A001, A002
    values, indices = mint.max(input, dim)
    return values, indices
