"""The values of a failing input made short, one by one: Hypothesis shrinks how they were drawn, not what they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import torch

from pytest_msprobe.engine.values.strides import lay_out

Tensors: TypeAlias = Mapping[str, torch.Tensor]

# More elements than this are not looked at one by one.
_MOST_ELEMENTS = 64


def shorten(tensors: Tensors, fails: Callable[[Tensors], bool]) -> Tensors:
    """Return tensors of the same shapes and dtypes with short values, and contiguous, as long as they fail."""
    for path, tensor in tensors.items():
        for simpler in _as_a_whole(tensor):
            if fails({**tensors, path: simpler}):
                tensors = {**tensors, path: simpler}
                break
        if tensor.numel() <= _MOST_ELEMENTS:
            tensors = {**tensors, path: _one_by_one(path, tensors, fails)}
    return tensors


def _as_a_whole(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    yield torch.zeros_like(tensor, memory_format=torch.contiguous_format)
    if tensor.dtype is not torch.bool:
        yield torch.ones(tensor.shape).to(tensor.dtype)
    if not tensor.is_contiguous():
        yield tensor.clone(memory_format=torch.contiguous_format)


def _one_by_one(path: str, tensors: Tensors, fails: Callable[[Tensors], bool]) -> torch.Tensor:
    tensor = tensors[path]
    for place in range(tensor.numel()):
        for simpler in _simpler(tensor.reshape(-1)[place].item()):
            changed = _with_value(tensor, place, simpler)
            if fails({**tensors, path: changed}):
                tensor = changed
                break
        tensors = {**tensors, path: tensor}
    return tensor


def _simpler(value: Any) -> Iterator[Any]:
    """Yield values with fewer digits, the simplest first."""
    candidates: list[Any] = [0, 1]
    if isinstance(value, float) and math.isfinite(value):
        candidates += [float(round(value)), *(float(f"{value:.{digits}g}") for digits in (1, 2, 3))]
    for candidate in candidates:
        if candidate == value:
            return
        yield candidate


def _with_value(tensor: torch.Tensor, place: int, value: Any) -> torch.Tensor:
    values = tensor.clone(memory_format=torch.contiguous_format)
    values.view(-1)[place] = value
    return values if tensor.is_contiguous() else lay_out(values, tensor.stride())
