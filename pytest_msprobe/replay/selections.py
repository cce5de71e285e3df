"""Index results of sort, topk, max and their like, where ties leave the choice to the implementation.

Two devices may select different positions that hold equal values; both are right. An index result is therefore judged
by what it selects: where that is the same, the target's index is taken as golden's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

_OF_VALUES_AND_INDICES = frozenset(
    {"sort", "topk", "max", "min", "median", "nanmedian", "mode", "kthvalue", "cummax", "cummin", "msort"}
)
_OF_INDICES = frozenset({"argmax", "argmin", "argsort"})
_ORDERINGS = frozenset({"sort", "argsort", "topk"})


def accept_equal_selections(
    api: str, arguments: tuple[Sequence[Any], Mapping[str, Any]], target: Any, golden: Any
) -> Any:
    """Return the target's output with each index that selects the same value as golden's replaced by golden's.

    ``arguments`` are positional and keyword arguments in the recorded dtypes; ``target`` and ``golden`` are CPU
    outputs. Positions that an ordering selects twice stay as they are, and so fail.
    """
    args, kwargs = arguments
    source = args[0] if args else kwargs.get("input")
    if not isinstance(source, torch.Tensor) or source.dim() == 0:
        return target
    if api in _OF_INDICES:
        return _same_or(target, golden, lambda: _accepted(api, args, kwargs, source, target, golden))
    if api in _OF_VALUES_AND_INDICES and _is_pair(target) and _is_pair(golden):
        values, indices = target
        accepted = _same_or(indices, golden[1], lambda: _accepted(api, args, kwargs, source, indices, golden[1]))
        return (values, accepted)
    return target


def _is_pair(output: Any) -> bool:
    return isinstance(output, tuple) and len(output) == 2 and isinstance(output[1], torch.Tensor)


def _same_or(target: torch.Tensor, golden: torch.Tensor, otherwise: Callable[[], torch.Tensor]) -> torch.Tensor:
    if not isinstance(golden, torch.Tensor) or target.shape != golden.shape or target.dtype != golden.dtype:
        return target
    return target if torch.equal(target, golden) else otherwise()


def _accepted(
    api: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    source: torch.Tensor,
    target: torch.Tensor,
    golden: torch.Tensor,
) -> torch.Tensor:
    dim = _dim(api, args, kwargs)
    if dim is None:
        source, dim = source.flatten(), 0
        target_places, golden_places = target.reshape(-1), golden.reshape(-1)
    else:
        reduced = target.dim() < source.dim()
        target_places = target.unsqueeze(dim) if reduced else target
        golden_places = golden.unsqueeze(dim) if reduced else golden
    in_range = (target_places >= 0) & (target_places < source.shape[dim])
    selected = source.gather(dim, target_places.clamp(0, source.shape[dim] - 1))
    wanted = source.gather(dim, golden_places)
    equal = in_range & ((selected == wanted) | (selected.isnan() & wanted.isnan()))
    if api in _ORDERINGS:
        in_order = target_places.sort(dim=dim).values
        equal = equal & ~(in_order.diff(dim=dim) == 0).any(dim=dim, keepdim=True)
    return torch.where(equal.view_as(target), golden, target)


def _dim(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int | None:
    position = 2 if api in ("topk", "kthvalue") else 1
    default = None if api in ("argmax", "argmin") else -1
    dim = args[position] if len(args) > position else kwargs.get("dim", default)
    # sort(x, descending) may come without a dim.
    return dim if dim is None or type(dim) is int else -1
