"""Losses by rows and by elements: a mean or a sum over blocks is put together from the sums of the blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from pytest_msprobe.engine.replay.blockwise.cut import Cut
from pytest_msprobe.engine.replay.blockwise.given import Given, is_index, tensor_in

# The class that losses leave out where they are not told another.
_IGNORED = -100


def divisor(given: Given) -> torch.Tensor | None:
    """Return what a loss divides the sum of its rows or elements by, in float64; None where it is that sum."""
    if given.get("reduction", ("", "mean"))[1] != "mean":
        return None
    target = given["target"][1]
    if not is_index(target):
        return torch.tensor(target.numel(), dtype=torch.float64)
    counted, weight = target[target != given.get("ignore_index", ("", _IGNORED))[1]], tensor_in(given, "weight")
    each = torch.ones_like(counted, dtype=torch.float64) if weight is None else weight[1].detach().double()[counted]
    return each.sum()


def loss_of_classes(given: Given) -> Iterator[Cut]:
    """Cut the loss of a class for each row, of shape (N, C, ...) against (N, ...), by rows; weights stay whole."""
    ours, target = tensor_in(given, "input"), tensor_in(given, "target")
    if ours is None or target is None or not is_index(target[1]) or target[1].dim() != ours[1].dim() - 1:
        return
    shape, ignored = tuple(target[1].shape), given.get("ignore_index", ("", _IGNORED))[1]
    if not shape or shape != (ours[1].shape[0], *ours[1].shape[2:]):
        return
    # One block does not see the classes of another, and a device may not survive one that there is not.
    if _are_classes(target[1], ours[1].shape[1], ignored):
        yield from _reduced(given, Cut(shape, 0, {ours[0]: 0, target[0]: 0}))


def _are_classes(target: torch.Tensor, count: int, ignored: int) -> bool:
    return target.is_meta or bool(((target == ignored) | ((target >= 0) & (target < count))).all())


def loss_of_elements(given: Given) -> Iterator[Cut]:
    """Cut the loss of each element along any dimension."""
    ours, target = tensor_in(given, "input"), tensor_in(given, "target")
    if ours is None or target is None or ours[1].shape != target[1].shape:
        return
    if is_index(target[1]) or any(tensor_in(given, name) is not None for name in ("weight", "pos_weight")):
        return
    for dim in range(ours[1].dim()):
        yield from _reduced(given, Cut(tuple(ours[1].shape), dim, {ours[0]: dim, target[0]: dim}))


def _reduced(given: Given, cut: Cut) -> Iterator[Cut]:
    """Yield the cut of a loss by its reduction, where that can be given another value."""
    path, reduction = given.get("reduction", ("kwargs.reduction", "mean"))
    if any(given.get(name, ("", None))[1] is not None for name in ("size_average", "reduce")):
        return
    if reduction == "none":
        yield cut
    elif reduction in ("mean", "sum") and path == "kwargs.reduction":
        yield replace(cut, is_reduced=True)
