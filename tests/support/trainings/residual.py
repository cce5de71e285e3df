"""A model with what a script compiles: constants, submodules and exported methods."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Residual(nn.Module):
    """A module with a constant, a submodule and a method of its own."""

    __constants__ = ("scale",)

    def __init__(self) -> None:
        super().__init__()
        self.scale = 2
        self.inner = nn.Linear(4, 4)

    @torch.jit.export
    def scaled(self, x: Tensor) -> Tensor:
        return x * self.scale

    def forward(self, x: Tensor) -> Tensor:
        return x + self.scaled(self.inner(x))


def model() -> nn.Module:
    """Return the model, with the same weights each time."""
    torch.manual_seed(0)
    return nn.Sequential(Residual(), nn.ReLU(), nn.Linear(4, 1))
