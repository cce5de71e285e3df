"""What an architecture is here: a model, its loss, and the optimizer of its one training step."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

SEED = 20261122


def adamw(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return AdamW as accelerators run it: a call for all parameters, not several for each."""
    return torch.optim.AdamW(parameters, foreach=True)


@dataclass(frozen=True)
class Training:
    """A model and what trains it: ``loss`` runs it on its batch, ``precision`` is the context that it runs in."""

    model: nn.Module
    loss: Callable[[], Tensor]
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] = adamw
    precision: Callable[[], AbstractContextManager[object]] = nullcontext
    loss_scale: float = 1.0

    def step(self) -> Tensor:
        """Train one step and return its loss."""
        optimizer = self.optimizer(self.model.parameters())
        with self.precision():
            loss = self.loss()
        (loss * self.loss_scale if self.loss_scale != 1 else loss).backward()
        optimizer.step()
        return loss.detach()


class Architecture(NamedTuple):
    """What is shown of an architecture, and what makes its training."""

    title: str
    make: Callable[[], Training]


ARCHITECTURES: dict[str, Architecture] = {}


def architecture(title: str) -> Callable[[Callable[[], Training]], Callable[[], Training]]:
    """Add the function below to the architectures, by its name."""

    def add(make: Callable[[], Training]) -> Callable[[], Training]:
        ARCHITECTURES[make.__name__] = Architecture(title, make)
        return make

    return add


def seed(number: int = SEED) -> None:
    """Seed all that models and their libraries draw from."""
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)


def tokens(batch: int = 2, length: int = 8, vocabulary: int = 128) -> Tensor:
    """Return random token ids."""
    return torch.randint(1, vocabulary, (batch, length))


def images(batch: int = 2, size: int = 64, channels: int = 3) -> Tensor:
    """Return random images."""
    return torch.randn(batch, channels, size, size)
