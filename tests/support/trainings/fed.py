"""A model that keeps what its layers are inputs_of, and recordings of it to feed from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from msprobe_hooks import record


class Pair(NamedTuple):
    """Two tensors in a container of its own."""

    left: Tensor
    right: Tensor


class Block(nn.Module):
    """Keeps what it was given at each call, apart from any hook."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.received: list[Any] = []

    def forward(self, x, scale=1.0, state=None):
        self.received.append((x.detach().clone(), scale, state))
        y = torch.tanh(self.fc(x)) * scale
        return y if state is None else y + state["pair"].left


class Model(nn.Module):
    """Three blocks, one after the other; the first one of a broken model has another weight."""

    def __init__(self, *, broken: bool = False) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layers = nn.ModuleList(Block() for _ in range(3))
        if broken:
            self.layers[0].fc.weight.data *= 2
        self.reentrant: bool | None = None

    def forward(self, x, **options):
        for layer in self.layers:
            x = layer(x, **options) if self.reentrant is None else checkpoint(layer, x, use_reentrant=self.reentrant)
        return x


def batch(seed: int = 0, *, requires_grad: bool = False) -> Tensor:
    """Return the batch of a seed."""
    return torch.randn(2, 4, generator=torch.Generator().manual_seed(seed)).requires_grad_(requires_grad)


@contextmanager
def recording(folder: Path, model: nn.Module, level: str = "L0", task: str = "tensor", **options: Any) -> Iterator[Any]:
    """Record a model as the tests feed it."""
    with record(folder, level=level, task=task, model=model, **options) as session:
        yield session


def inputs_of_last(*seeds: int) -> list[Tensor]:
    """What the last layer of the right model is given for these batches."""
    model = Model()
    return [model.layers[1](model.layers[0](batch(seed))).detach() for seed in seeds]


def inputs_of(model: Model, layer: int = 2) -> list[Tensor]:
    """Return what a layer was given at each call."""
    return [x for x, _, _ in model.layers[layer].received]


def assert_equal(found: list[Tensor], expected: list[Tensor]) -> None:
    """Assert that tensors are the same, one by one."""
    assert len(found) == len(expected)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
