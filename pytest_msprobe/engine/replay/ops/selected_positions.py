"""Positions among the results of sort, topk, max and their like, where the choice is left to the implementation.

Two devices may select different positions that hold equal values; both are right. An index result is therefore judged
by what it selects: where that is the same, the target's index is taken as golden's. A stable sort leaves no choice. Of
several values that are the most frequent, any may be the mode.

Operators that select by scores which they compute themselves, such as the keys of an indexer, leave more open: the
scores are sums of products, which devices round in other ways. Of scores that differ by no more than that, either may
be selected, and in either order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pytest_msprobe.engine.values.pytree import map_with_paths


@dataclass(frozen=True, slots=True)
class Selection:
    """Positions of the input among the results, where ties leave the choice to the implementation.

    ``outputs`` is how many results there are, the positions last. ``dim`` is the argument's default and ``dim_at`` its
    position; a dim of None selects from the flattened input. ``orders`` says that no position is selected twice,
    ``counts`` that the value is the most frequent one, of which there may be several.
    """

    outputs: int = 2
    dim: int | None = -1
    dim_at: int = 1
    orders: bool = False
    counts: bool = False


@dataclass(frozen=True, slots=True)
class RankedPositions:
    """Which result holds the positions, and how the scores follow from the operator's arguments.

    Positions are the result ``positions_at`` of ``outputs``, -1 behind the last. ``scores`` gives for each row of them
    what they are positions in, -inf for what is no choice. The result ``values_at`` holds the scores of the positions.
    """

    scores: Callable[..., Tensor]
    outputs: int
    positions_at: int = 0
    values_at: int | None = None


def accept_ties(
    selection: Selection | RankedPositions | None,
    arguments: tuple[Sequence[Any], Mapping[str, Any]],
    target: Any,
    golden: Any,
) -> Any:
    """Return the target's output with each index that selects the same value as golden's replaced by golden's.

    ``arguments`` are positional and keyword arguments in the recorded dtypes; ``target`` and ``golden`` are CPU
    outputs, a single one in a list. Positions that an ordering selects twice stay as they are, and so fail.
    """
    if isinstance(selection, RankedPositions):
        return _accept_ranked(selection, arguments, target, golden)
    args, kwargs = arguments
    source = args[0] if args else kwargs.get("input")
    if selection is None or not isinstance(source, Tensor) or source.dim() == 0:
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
    selection: Selection,
    arguments: tuple[Sequence[Any], Mapping[str, Any]],
    target: Any,
    golden: Any,
    grad_output: Tensor,
    gradient: Tensor,
) -> Tensor:
    """Return golden's gradient as it would be had golden selected the positions that the target did.

    ``target`` and ``golden`` are the CPU outputs, ``grad_output`` is the gradient of the selected values, ``gradient``
    golden's own. That is returned unless other positions were selected and hold the same values.
    """
    if selection.outputs == 1:
        return gradient
    accepted = accept_ties(selection, arguments, target, golden)
    if accepted is target or torch.equal(target[1], golden[1]) or not torch.equal(accepted[1], golden[1]):
        return gradient
    dim, positions = _dim(selection, *arguments), target[1]
    assert dim is not None
    if positions.dim() < gradient.dim():
        positions, grad_output = positions.unsqueeze(dim), grad_output.unsqueeze(dim)
    return torch.zeros_like(gradient).scatter_add_(dim, positions, grad_output.to(gradient.dtype))


def _same_or(target: Any, golden: Any, otherwise: Callable[[], Tensor]) -> Any:
    if not (isinstance(target, Tensor) and isinstance(golden, Tensor)):
        return target
    if target.shape != golden.shape or target.dtype != golden.dtype:
        return target
    return target if torch.equal(target, golden) else otherwise()


def _accepted(
    selection: Selection,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    source: Tensor,
    target: Tensor,
    golden: Tensor,
) -> Tensor:
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
    selection: Selection, args: Sequence[Any], kwargs: Mapping[str, Any], source: Tensor, target: Any, golden: Any
) -> Any:
    """Return the results with golden's where the target has another value that is as frequent, and where that is."""
    dim = _dim(selection, args, kwargs)
    (values, indices), (right, right_indices) = target, golden
    alike = isinstance(values, Tensor) and values.shape == right.shape and indices.shape == right_indices.shape
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


def _accept_ranked(
    ranked: RankedPositions, arguments: tuple[Sequence[Any], Mapping[str, Any]], target: Any, golden: Any
) -> Any:
    """Return the target's output with golden's positions in each row that selects the same scores.

    Values of such a row are put in order, which is golden's. Rows that select a position twice, or one that is no
    choice, stay as they are, and so fail.
    """
    if not len(target) == len(golden) == ranked.outputs:
        return target
    found, right = target[ranked.positions_at], golden[ranked.positions_at]
    rows = _equivalent_rows(ranked, arguments, found, right)
    if rows is None:
        return target
    results = list(target)
    results[ranked.positions_at] = torch.where(rows, right, found)
    values = None if ranked.values_at is None else target[ranked.values_at]
    if ranked.values_at is not None and isinstance(values, Tensor) and values.shape == found.shape:
        results[ranked.values_at] = torch.where(rows, values.sort(dim=-1, descending=True).values, values)
    return type(target)(results)


def gradients_of_ranked(
    ranked: RankedPositions,
    arguments: tuple[Sequence[Any], Mapping[str, Any]],
    target: Any,
    golden: Any,
    grad_outputs: Mapping[str, Tensor],
    gradients: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Return golden's gradients as they would be had golden selected, in this order, what the target did.

    Where the target's positions are golden's, or select other scores, they are ``gradients``, golden's own by the path
    of their argument. ``grad_outputs`` arrive for the results, by path.
    """
    arriving = grad_outputs.get(str(ranked.values_at))
    if arriving is None or len(grad_outputs) > 1 or not len(target) == len(golden) == ranked.outputs:
        return dict(gradients)
    found, right = target[ranked.positions_at], golden[ranked.positions_at]
    rows = _equivalent_rows(ranked, arguments, found, right)
    if rows is None or not rows.any():
        return dict(gradients)
    leaves: dict[str, Tensor] = {}

    def leaf(path: str, value: Any) -> Any:
        if path in gradients:
            value = leaves[path] = value.detach().to(gradients[path].dtype).requires_grad_()
        return value

    args, kwargs = map_with_paths(leaf, list(arguments[0]), "args"), map_with_paths(leaf, dict(arguments[1]), "kwargs")
    positions = torch.where(rows, found, right).long()
    with torch.enable_grad():
        scores = ranked.scores(*args, **kwargs)
        selected = scores.gather(-1, positions.clamp(min=0)).masked_fill(positions < 0, 0.0)
        per_leaf = torch.autograd.grad(selected, list(leaves.values()), arriving.to(selected.dtype), allow_unused=True)
    changed = {path: grad for path, grad in zip(leaves, per_leaf, strict=True) if grad is not None}
    return {**gradients, **changed}


def _equivalent_rows(
    ranked: RankedPositions, arguments: tuple[Sequence[Any], Mapping[str, Any]], found: Any, right: Any
) -> Tensor | None:
    """Return which rows of positions select the scores that golden's do, (..., 1); None where all are golden's."""
    if not (isinstance(found, Tensor) and isinstance(right, Tensor)) or found.dtype != right.dtype:
        return None
    if found.shape != right.shape or torch.equal(found, right):
        return None
    with torch.no_grad():
        args, kwargs = (map_with_paths(_widened, tree, "") for tree in (list(arguments[0]), dict(arguments[1])))
        scores = ranked.scores(*args, **kwargs)
    finite = scores.masked_fill(~scores.isfinite(), 0.0)
    limit = finite.abs().amax(-1, keepdim=True) * _unit(arguments)
    selected, wanted = (_selected(scores, positions) for positions in (found, right))
    apart = (selected - wanted).abs().masked_fill(selected == wanted, 0.0)
    used = found.sort(dim=-1).values
    twice = ((used.diff(dim=-1) == 0) & (used[..., 1:] >= 0)).any(-1, keepdim=True)
    outside = ((found < -1) | (found >= scores.shape[-1])).any(-1, keepdim=True)
    resumed = ((found >= 0).int().diff(dim=-1) > 0).any(-1, keepdim=True)
    return (apart <= limit).all(-1, keepdim=True) & ~(twice | outside | resumed)


def _selected(scores: Tensor, positions: Tensor) -> Tensor:
    """Return the scores at positions, in order, -inf where there is none."""
    there = positions.long().clamp(0, scores.shape[-1] - 1)
    return scores.gather(-1, there).masked_fill(positions < 0, -torch.inf).sort(dim=-1, descending=True).values


def _widened(path: str, value: Any) -> Any:
    if isinstance(value, Tensor) and value.is_floating_point() and value.element_size() < 4:
        return value.to(torch.float32)
    return value


def _unit(arguments: tuple[Sequence[Any], Mapping[str, Any]]) -> float:
    """Return the distance from 1 to the next number, of the narrowest floats among the arguments."""
    return max((torch.finfo(each.dtype).eps for each in _floats(arguments)), default=0.0)


def _floats(arguments: tuple[Sequence[Any], Mapping[str, Any]]) -> Iterator[Tensor]:
    for value in (*arguments[0], *arguments[1].values()):
        if isinstance(value, Tensor) and value.is_floating_point() and value.element_size() > 1:
            yield value
