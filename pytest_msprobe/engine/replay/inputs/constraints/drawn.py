"""The drawn arguments of one call, as constraints see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import torch

#: Mends the drawn arguments of an operation in place, where it promises nothing for what was drawn.
Constraint: TypeAlias = Callable[["DrawnArguments"], None]


class DrawnArguments:
    """The arguments of one call, found by position or by keyword."""

    def __init__(self, args: Sequence[Any], kwargs: dict[str, Any], seed: int) -> None:
        self.args = list(args)
        self.kwargs = kwargs
        self._seed = seed

    @cached_property
    def generator(self) -> torch.Generator:
        """What a constraint draws from."""
        return torch.Generator().manual_seed(self._seed)

    def get(self, position: int, *names: str) -> Any:
        """Return the argument at a position or under one of its names; None where it was not given."""
        if position < len(self.args):
            return self.args[position]
        return next((self.kwargs[name] for name in names if name in self.kwargs), None)

    def tensor(self, position: int, *names: str) -> torch.Tensor | None:
        """Return the argument where it is a tensor, None otherwise."""
        value = self.get(position, *names)
        return value if isinstance(value, torch.Tensor) else None


def split_evenly(total: int, shares: torch.Tensor) -> None:
    """Fill an integer tensor in place with nearly equal shares, the larger ones first, that add up to ``total``."""
    base, extra = divmod(total, shares.numel())
    shares.fill_(base).view(-1)[:extra] += 1
