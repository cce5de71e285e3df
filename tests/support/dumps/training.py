"""A small model, its training, and what a watcher tells of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from msprobe_hooks.extensions.monitor.series.writer import Row


class Block(nn.Module):
    """A residual layer: its input is used twice."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return x + scale * torch.relu_(self.linear(self.norm(x)))


def model() -> nn.Sequential:
    """Return a model of two blocks, whose parameters are the same in every call."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 6), Block(), nn.Dropout(0.1), Block(), nn.Linear(6, 2))


def train(one: nn.Module, optimizer: Any, steps: int = 3, micro_batches: int = 1) -> list[float]:
    """Return the losses of a few steps; batches are the same in every call."""
    torch.manual_seed(1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(micro_batches):
            loss = one(torch.randn(4, 3)).square().mean()
            loss.backward()
            losses.append(loss.item())
        optimizer.step()
    return losses


def adam(one: nn.Module) -> torch.optim.AdamW:
    """Return an optimizer of all parameters."""
    return torch.optim.AdamW(one.parameters(), lr=0.01)


def by_name(rows: Iterable[Row], task: str) -> dict[tuple[str, int | None], tuple[float, ...]]:
    """Return the rows of a task by name and micro step."""
    return {(row.name, row.micro_step): row.values for row in rows if row.task == task}
