"""Positions of the highest of scores that an operator computes itself: keys that an indexer selects, blocks of them.

The scores are sums of products, which devices round in other ways. Of scores that differ by no more than that, either
may be selected, and in either order. So positions are judged by the scores of what they select: where each row's are
golden's, but for the rounding, the target's positions are taken as golden's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pytest_msprobe.engine.values.pytree import map_with_paths


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


def accept_ranked(
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
