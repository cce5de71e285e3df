"""Index results of sort, topk, max and their like, where ties leave the choice to the implementation.

Two devices may select different positions that hold equal values; both are right. An index result is therefore judged
by what it selects: where that is the same, the target's index is taken as golden's. A stable sort leaves no choice. Of
several values that are the most frequent, any may be the mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from pytest_msprobe.engine.replay.ops.op_info import op_info
from pytest_msprobe.engine.replay.ops.ranked_positions import RankedPositions, accept_ranked
from pytest_msprobe.engine.replay.ops.traits import Selection


def accept_ties(operation: str, arguments: tuple[Sequence[Any], Mapping[str, Any]], target: Any, golden: Any) -> Any:
    """Return the target's output with each index that selects the same value as golden's replaced by golden's.

    ``arguments`` are positional and keyword arguments in the recorded dtypes; ``target`` and ``golden`` are CPU
    outputs, a single one in a list. Positions that an ordering selects twice stay as they are, and so fail.
    """
    args, kwargs = arguments
    selection = op_info(operation).selection
    if isinstance(selection, RankedPositions):
        return accept_ranked(selection, arguments, target, golden)
    source = args[0] if args else kwargs.get("input")
    if selection is None or not isinstance(source, torch.Tensor) or source.dim() == 0:
        return target
    if not len(target) == len(golden) == selection.outputs or (selection.orders and _is_stable(args, kwargs)):
        return target
    if selection.counts:
        target = _as_frequent(selection, args, kwargs, source, target, golden)
    *values, indices = target
    right = golden[-1]
    indices = _same_or(indices, right, lambda: _accepted(selection, args, kwargs, source, indices, right))
    return type(target)([*values, indices])


def gradient_of_selection(
    operation: str,
    arguments: tuple[Sequence[Any], Mapping[str, Any]],
    target: Any,
    golden: Any,
    grad_output: torch.Tensor,
    gradient: torch.Tensor,
) -> torch.Tensor:
    """Return golden's gradient as it would be had golden selected the positions that the target did.

    ``target`` and ``golden`` are the CPU outputs, ``grad_output`` is the gradient of the selected values, ``gradient``
    golden's own. That is returned unless other positions were selected and hold the same values.
    """
    selection = op_info(operation).selection
    if not isinstance(selection, Selection) or selection.outputs == 1:
        return gradient
    accepted = accept_ties(operation, arguments, target, golden)
    if accepted is target or torch.equal(target[1], golden[1]) or not torch.equal(accepted[1], golden[1]):
        return gradient
    dim, positions = _dim(selection, *arguments), target[1]
    assert dim is not None
    if positions.dim() < gradient.dim():
        positions, grad_output = positions.unsqueeze(dim), grad_output.unsqueeze(dim)
    return torch.zeros_like(gradient).scatter_add_(dim, positions, grad_output.to(gradient.dtype))


def _same_or(target: Any, golden: Any, otherwise: Callable[[], torch.Tensor]) -> Any:
    if not (isinstance(target, torch.Tensor) and isinstance(golden, torch.Tensor)):
        return target
    if target.shape != golden.shape or target.dtype != golden.dtype:
        return target
    return target if torch.equal(target, golden) else otherwise()


def _accepted(
    selection: Selection,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    source: torch.Tensor,
    target: torch.Tensor,
    golden: torch.Tensor,
) -> torch.Tensor:
    dim = _dim(selection, args, kwargs)
    if dim is None:
        source, dim = source.flatten(), 0
        target_positions, golden_positions = target.reshape(-1), golden.reshape(-1)
    else:
        reduced = target.dim() < source.dim()
        target_positions = target.unsqueeze(dim) if reduced else target
        golden_positions = golden.unsqueeze(dim) if reduced else golden
    in_range = (target_positions >= 0) & (target_positions < source.shape[dim])
    selected = source.gather(dim, target_positions.clamp(0, source.shape[dim] - 1))
    wanted = source.gather(dim, golden_positions)
    equal = in_range & ((selected == wanted) | (selected.isnan() & wanted.isnan()))
    if selection.orders:
        in_order = target_positions.sort(dim=dim).values
        equal = equal & ~(in_order.diff(dim=dim) == 0).any(dim=dim, keepdim=True)
    return torch.where(equal.view_as(target), golden, target)


def _is_stable(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    # MindSpore's argsort takes it by position; no other argument behind the third is a bool.
    return kwargs.get("stable") is True or (len(args) > 3 and args[3] is True)


def _as_frequent(
    selection: Selection, args: Sequence[Any], kwargs: Mapping[str, Any], source: torch.Tensor, target: Any, golden: Any
) -> Any:
    """Return the results with golden's where the target has another value that is as frequent, and where that is."""
    dim = _dim(selection, args, kwargs)
    (values, indices), (right, right_indices) = target, golden
    alike = isinstance(values, torch.Tensor) and values.shape == right.shape and indices.shape == right_indices.shape
    if dim is None or not alike or torch.equal(values, right):
        return target
    reduced = values.dim() < source.dim()
    found, wanted, places = (x.unsqueeze(dim) if reduced else x for x in (values, right, indices))
    in_range = (places >= 0) & (places < source.shape[dim])
    there = source.gather(dim, places.clamp(0, source.shape[dim] - 1))
    counts = [(source == value).sum(dim, keepdim=True) for value in (found.to(source.dtype), wanted.to(source.dtype))]
    right_too = (in_range & (there == found) & (counts[0] == counts[1])).view(values.shape)
    return type(target)(
        [torch.where(right_too, right.to(values.dtype), values), torch.where(right_too, right_indices, indices)]
    )


def _dim(selection: Selection, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int | None:
    dim = args[selection.dim_at] if len(args) > selection.dim_at else kwargs.get("dim", selection.dim)
    # sort(x, descending) may come without a dim.
    return dim if dim is None or type(dim) is int else -1
