"""One value of many: sums, extrema and their places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def reduction(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the reduction along one axis or several, along all where none is named."""

    def reduce(x: Tensor, axis: int | Sequence[int] = (), *, keep_dims: bool) -> Tensor:
        axes = [axis] if isinstance(axis, int) else list(axis) or list(range(x.dim()))
        return function(x, axes, keepdim=keep_dims)

    return reduce


def total(x: Tensor, axis: int | Sequence[int] = (), *, keep_dims: bool, skip_mode: bool) -> Tensor:
    """Return the sum along axes; where none is named, that of all, or with ``skip_mode`` the input as it is."""
    if skip_mode and not isinstance(axis, int) and not axis:
        return x.clone()
    return reduction(torch.sum)(x, axis, keep_dims=keep_dims)


def product(x: Tensor, axes: Sequence[int], *, keepdim: bool) -> Tensor:
    """Return the product along axes."""
    for axis in sorted((axis % x.dim() for axis in axes), reverse=True):
        x = x.prod(axis, keepdim=keepdim)
    return x


def with_place(function: Callable[..., Any]) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return the extremum along an axis as MindSpore gives it: its place before its value."""

    def extremum(x: Tensor, *, axis: int, keep_dims: bool) -> tuple[Tensor, Tensor]:
        value, place = function(x, axis, keep_dims)
        return place, value

    return extremum


def place_of(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the place of the extremum along an axis."""

    def place(x: Tensor, *, axis: int, output_type: Any = None) -> Tensor:
        return function(x, axis)

    return place


def cumsum(x: Tensor, axis: int, *, exclusive: bool, reverse: bool) -> Tensor:
    """Return sums of all elements so far along an axis; without the element itself, or from the end."""
    axis = int(axis)
    ordered = x.flip(axis) if reverse else x
    sums = ordered.cumsum(axis)
    sums = sums - ordered if exclusive else sums
    return sums.flip(axis) if reverse else sums


def topk(x: Tensor, k: int, *, sorted: bool) -> Any:  # noqa: A002
    """Return the greatest elements along the last axis and their places."""
    return torch.topk(x, int(k), sorted=sorted)
