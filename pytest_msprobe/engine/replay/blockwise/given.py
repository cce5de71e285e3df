"""A call's arguments by the names of their parameters, as rules of cutting see them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import torch

from pytest_msprobe.engine.replay.blockwise.cut import Cut

#: Path and value of each argument by its parameter's name.
Given: TypeAlias = Mapping[str, tuple[str, Any]]

#: Gives the cuts of a call.
Rule: TypeAlias = Callable[[Given], Iterator[Cut]]


def is_index(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor holds whole numbers that may be indices, or bools."""
    return tensor.dtype in (torch.int64, torch.int32, torch.bool)


def tensors_in(given: Given) -> list[tuple[str, torch.Tensor]]:
    """Return paths and values of the arguments that are tensors."""
    return [(path, value) for path, value in given.values() if isinstance(value, torch.Tensor)]


def tensor_in(given: Given, name: str) -> tuple[str, torch.Tensor] | None:
    """Return path and value of an argument that is a tensor; None of any other."""
    path, value = given.get(name, ("", None))
    return (path, value) if isinstance(value, torch.Tensor) else None
