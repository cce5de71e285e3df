"""Numbers that example calls are made of, drawn from a generator."""

from __future__ import annotations

import torch
from torch import Generator, Tensor


def draw(generator: Generator, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return normal numbers."""
    return torch.randn(shape, generator=generator).to(dtype)


def half(generator: Generator, *shape: int) -> Tensor:
    """Return normal numbers in float16."""
    return draw(generator, *shape, dtype=torch.float16)


def brain(generator: Generator, *shape: int) -> Tensor:
    """Return normal numbers in bfloat16."""
    return draw(generator, *shape, dtype=torch.bfloat16)


def positive(generator: Generator, *shape: int) -> Tensor:
    """Return numbers from 0.1 to 1.1."""
    return torch.rand(shape, generator=generator) + 0.1


def whole(generator: Generator, *shape: int, low: int = -128, high: int = 128) -> Tensor:
    """Return whole numbers of 8 bits, ``high`` left out."""
    return torch.randint(low, high, shape, generator=generator, dtype=torch.int8)
