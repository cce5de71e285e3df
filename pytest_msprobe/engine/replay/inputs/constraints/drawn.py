"""The drawn arguments of one call, as constraints see them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import torch

from pytest_msprobe.engine.values.pytree import tensors_with_paths
from pytest_msprobe.results.outcomes import Skip, SkipReason

#: Mends the drawn arguments of an operation in place, where it promises nothing for what was drawn.
Constraint: TypeAlias = Callable[["DrawnArguments"], None]

# What is quantized, or a picture, has 8 bits; the places of data have more.
_WIDE = (torch.int16, torch.int32, torch.int64)


class DrawnArguments:
    """The arguments of one call, found by position or by keyword."""

    def __init__(self, args: Sequence[Any], kwargs: dict[str, Any], seed: int) -> None:
        self.args = list(args)
        self.kwargs = kwargs
        self._seed = seed

    @cached_property
    def generator(self) -> torch.Generator:
        """Return what a constraint draws from."""
        return torch.Generator().manual_seed(self._seed)

    @cached_property
    def places(self) -> random.Random:
        """Return what chooses places, of which it takes a few out of any number."""
        return random.Random(self._seed)

    def get(self, position: int, *names: str) -> Any:
        """Return the argument at a position or under one of its names; None where it was not given."""
        if position < len(self.args):
            return self.args[position]
        return next((self.kwargs[name] for name in names if name in self.kwargs), None)

    def tensor(self, position: int, *names: str) -> torch.Tensor | None:
        """Return the argument where it is a tensor, None otherwise."""
        value = self.get(position, *names)
        return value if isinstance(value, torch.Tensor) else None


def recorded_numbers(drawn: DrawnArguments) -> None:
    """Raise Skip where whole numbers were drawn, for an operation of which is not known what they have to be.

    A kernel may read at such places without a look at the data's end. Those that are all the same are as recorded.
    """
    for name, tree in (("args", drawn.args), ("kwargs", drawn.kwargs)):
        for path, tensor in tensors_with_paths(tree, name):
            if tensor.dtype in _WIDE and tensor.numel() > 1 and bool(tensor.min() < tensor.max()):
                raise Skip(SkipReason.UNBOUNDED_NUMBERS, path)


def split_evenly(total: int, shares: torch.Tensor) -> None:
    """Fill an integer tensor in place with nearly equal shares, the larger ones first, that add up to ``total``."""
    base, extra = divmod(total, shares.numel())
    shares.fill_(base).view(-1)[:extra] += 1
