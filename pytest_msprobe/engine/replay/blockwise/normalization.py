"""What normalises along some dimensions, cut along the others: softmax and norms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from pytest_msprobe.engine.replay.blockwise.cut import Cut
from pytest_msprobe.engine.replay.blockwise.given import Given, tensor_in


def along(given: Given) -> Iterator[Cut]:
    """Cut what works along one dimension, as a softmax does, along any other one."""
    found, dim = tensor_in(given, "input"), given.get("dim", ("", None))[1]
    if found is None or type(dim) is not int:
        return
    path, tensor = found
    if -tensor.dim() <= dim < tensor.dim():
        yield from _cut_alike(path, tensor, [each for each in range(tensor.dim()) if each != dim % tensor.dim()])


def over_last(given: Given) -> Iterator[Cut]:
    """Cut what normalises the last dimensions along those before them; weights stay whole."""
    found, normalized = tensor_in(given, "input"), given.get("normalized_shape", ("", None))[1]
    if found is None:
        return
    count = len(normalized) if isinstance(normalized, (list, tuple)) else 1
    yield from _cut_alike(*found, range(found[1].dim() - count))


def over_groups(given: Given) -> Iterator[Cut]:
    """Cut what normalises groups of channels of (N, C, ...) along N; weights of channels stay whole."""
    found = tensor_in(given, "input")
    if found is not None and found[1].dim() > 1:
        yield from _cut_alike(*found, [0])


def over_planes(given: Given) -> Iterator[Cut]:
    """Cut what normalises each plane of (N, C, ...) by itself along N or C."""
    yield from _of_channels(given, [0, 1])


def over_channels(given: Given) -> Iterator[Cut]:
    """Cut what normalises each channel of (N, C, ...) by itself along C."""
    yield from _of_channels(given, [1])


def _of_channels(given: Given, dims: Iterable[int]) -> Iterator[Cut]:
    """Cut (N, C, ...) along dimensions, and along C what there is a number of for each channel.

    Running statistics, which may be written to, are of all samples: with them along C alone.
    """
    found = tensor_in(given, "input")
    if found is None or found[1].dim() < 2:
        return
    path, tensor = found
    weights, statistics = _tensors(given, "weight", "bias"), _tensors(given, "running_mean", "running_var")
    if any(other.shape != (tensor.shape[1],) for other in (weights | statistics).values()):
        return
    for dim in dims:
        if dim == 1:
            yield Cut(tuple(tensor.shape), 1, {path: 1, **dict.fromkeys(weights | statistics, 0)}, tuple(statistics))
        elif not statistics:
            yield Cut(tuple(tensor.shape), dim, {path: dim})


def _tensors(given: Given, *names: str) -> dict[str, torch.Tensor]:
    return dict(each for name in names if (each := tensor_in(given, name)) is not None)


def _cut_alike(path: str, tensor: torch.Tensor, dims: Iterable[int]) -> Iterator[Cut]:
    for dim in dims:
        yield Cut(tuple(tensor.shape), dim, {path: dim})
