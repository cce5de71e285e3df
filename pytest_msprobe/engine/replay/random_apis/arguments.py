"""The arguments of a call by name, as the random APIs of torch declare them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

REQUIRED = object()
Parameters = tuple[tuple[str, Any], ...]
# the same argument under the name that another spelling of the API gives it
_ALIASES = {"self": "input", "train": "training", "lambd": "rate", "from": "low", "to": "high"}


def bound(api: str, parameters: Parameters, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name, defaults filled in; keywords not declared are kept.

    Raises TypeError where a required argument is missing.
    """
    given = {_ALIASES.get(name, name): value for name, value in kwargs.items()}
    given.update(zip((name for name, _ in parameters), args, strict=False))
    for name, default in parameters:
        if given.setdefault(name, default) is REQUIRED:
            raise TypeError(f"the recorded call of {api} lacks its argument {name!r}")
    return given


def sizes(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return the shape that a factory is asked for, given as ``size=``, one sequence or single integers."""
    size = kwargs.get("size")
    if size is None and args:
        size = args[0] if isinstance(args[0], Sequence) else args
    if size is None:
        return None
    return tuple(int(length) for length in size if isinstance(length, int))


def tensors(tree: Any) -> list[torch.Tensor]:
    """Return the tensors of a result in order."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, Mapping):
        return [tensor for value in tree.values() for tensor in tensors(value)]
    if isinstance(tree, (list, tuple)):
        return [tensor for value in tree for tensor in tensors(value)]
    return []
