"""MindSpore's functions that make tensors of a shape and a dtype, defined in torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

Shape: TypeAlias = "int | Sequence[int] | Tensor"


def _sizes(shape: Shape) -> Sequence[int]:
    if isinstance(shape, Tensor):
        return [int(size) for size in shape.reshape(-1)]
    return [shape] if isinstance(shape, int) else shape


def ones(shape: Shape, dtype: torch.dtype | None = None) -> Tensor:
    """Return a tensor of ones, by default of float32."""
    return torch.ones(_sizes(shape), dtype=dtype)


def zeros(size: Shape, dtype: torch.dtype | None = None) -> Tensor:
    """Return a tensor of zeros, by default of float32."""
    return torch.zeros(_sizes(size), dtype=dtype)


def fill(type: torch.dtype | None, shape: Shape, value: float) -> Tensor:  # noqa: A002
    """Return a tensor of one value, of that value's own dtype where none is given."""
    return torch.full(_sizes(shape), value, dtype=type)


def eye(n: int, m: int | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """Return ones on the diagonal of a matrix, by default a square one of float32, and zeros elsewhere."""
    return torch.eye(n, n if m is None else m, dtype=dtype)


CREATION: dict[str, Callable[..., Any]] = {
    f"Functional.{function.__name__}": function for function in (ones, zeros, fill, eye)
}
