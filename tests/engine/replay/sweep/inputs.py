"""What the calls of a sweep are given."""

from __future__ import annotations

import torch


class Draw:
    """Inputs in one dtype: ``x(2, 3)`` is normal (integers: in [1, 6)), ``x.positive(2, 3)`` in [0.5, 2)."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def __call__(self, *shape: int) -> torch.Tensor:
        if not (self.dtype.is_floating_point or self.dtype.is_complex):
            return torch.randint(1, 6, shape).to(self.dtype)
        return self._wanting_gradients(torch.randn(shape, dtype=torch.complex64 if self.dtype.is_complex else None))

    def positive(self, *shape: int) -> torch.Tensor:
        return self._wanting_gradients(torch.rand(shape) * 1.5 + 0.5)

    def unit(self, *shape: int) -> torch.Tensor:
        return self._wanting_gradients(torch.rand(shape) * 0.8 + 0.1)

    def complex(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.complex64).requires_grad_()

    def plain(self, *shape: int) -> torch.Tensor:
        return self(*shape).detach()

    def _wanting_gradients(self, values: torch.Tensor) -> torch.Tensor:
        return values.to(self.dtype).requires_grad_()


def index(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape)


def flags(*shape: int) -> torch.Tensor:
    return torch.rand(shape) < 0.5
