"""Rows of results that a call defines: those behind the last group hold whatever was in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from msprobe_hooks.dump.effects import valid_rows_of
from pytest_msprobe.engine.values.pytree import map_tensors

# Groups of what a product sums over, which every row of its results has.
_GROUPS_OF_INNER = 2


def defined_rows(operation: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return how many rows of a call's results are defined, of how many; None where all are."""
    valid = valid_rows_of(operation)
    if valid is None:
        return None
    groups = kwargs.get(valid.argument)
    if groups is None and valid.at is not None and len(args) > valid.at:
        groups = args[valid.at]
    total = _rows(args[0] if args else next(iter(kwargs.values()), None))
    if groups is None or total is None or (isinstance(groups, torch.Tensor) and groups.is_floating_point()):
        return None
    if isinstance(groups, torch.Tensor) and groups.dim() == 2:
        # Pairs of a group's number and its size.
        rows = sum(groups[:, 1].tolist())
    elif kwargs.get("group_type") == _GROUPS_OF_INNER:
        return None
    else:
        rows = valid.count([int(number) for number in groups], kwargs.get(valid.kind))
    return (rows, total) if 0 <= rows < total else None


def _rows(source: Any) -> int | None:
    if isinstance(source, (list, tuple)):
        return _rows(source[0]) if len(source) == 1 else None
    return source.shape[0] if isinstance(source, torch.Tensor) and source.dim() else None


def cut(tree: Any, rows: tuple[int, int] | None) -> Any:
    """Return results without the rows that are not defined."""
    if rows is None:
        return tree
    defined, total = rows

    def of_tensor(tensor: torch.Tensor) -> torch.Tensor:
        return tensor[:defined] if tensor.dim() and tensor.shape[0] == total else tensor

    return map_tensors(of_tensor, tree)
