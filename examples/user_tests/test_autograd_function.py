"""A custom autograd function: forward and hand-written backward against autograd in raised precision."""

from __future__ import annotations

from typing import Any

import torch

from pytest_msprobe import precision_standard


class SquaredReLU(torch.autograd.Function):
    """relu(x)**2 with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.relu().square()

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return grad_output * 2 * x.relu()


def golden(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0, x * x, 0 * x)


@precision_standard("ulp", max_ulp=2)
def test_squared_relu(precision):
    x = torch.randn(64, 128, generator=torch.Generator().manual_seed(0)).requires_grad_()
    precision.check(SquaredReLU.apply, x, golden=golden, backward=True)
