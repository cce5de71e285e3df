"""Tensors that Hypothesis draws for tests of the user's own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from hypothesis import strategies as st

from msprobe_hooks.dump.schema import TensorElement
from pytest_msprobe.extensions.explore.value_strategies import LAYOUTS, Drawing, Focus, Layout, special_values

# On these right implementations agree: NaN and infinities depend on the order in which numbers are summed.
_SPECIAL: tuple[Focus, ...] = ("signed zero", "subnormal", "tie")
_SIMPLE = tuple(sign * number for number in (0.0, 1.0, 2.0, 3.0, 4.0, 0.5, 1.5, 2.5, 3.5) for sign in (1, -1))
_MOST_VALUES = 12  # a choice: they repeat over the tensor, and a report names each
_SEEDS = st.integers(0, 2**16)


def tensors(
    dtype: torch.dtype,
    shape: Sequence[int | st.SearchStrategy[int]] | st.SearchStrategy[tuple[int, ...]],
    *,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
) -> st.SearchStrategy[torch.Tensor]:
    """Return a strategy for CPU tensors of a dtype, for ``precision.check`` and Hypothesis' ``@given``.

    Elements are random numbers, short ones repeated, zeros of both signs, subnormals, and values at which rounding
    ties. Tensors are contiguous, transposed, or have gaps. They shrink to small sizes and short values.

    Args:
        dtype: The dtype of the tensors.
        shape: A strategy, or a number or a strategy for each size; ``st.shared`` gives two tensors the same size.
        low: The least element (default: -4, of whole numbers 0).
        high: The greatest element (default: 4, of whole numbers 8).
        requires_grad: Whether the tensors require a gradient.

    Returns:
        The strategy.

    Raises:
        ValueError: There is nothing between ``low`` and ``high``.
    """
    is_float = dtype.is_floating_point or dtype.is_complex
    least = (-4.0 if is_float else 0) if low is None else low
    most = max(least, 4.0 if is_float else 8) if high is None else high
    if not least <= most:
        raise ValueError(f"tensors: low {low} is above high {high}")
    sizes = shape if isinstance(shape, st.SearchStrategy) else st.tuples(*map(_as_strategy, shape))
    layouts: st.SearchStrategy[Layout] = st.one_of(st.just(LAYOUTS[0]), st.sampled_from(LAYOUTS))

    def made(size: Sequence[int], drawing: Drawing, layout: Layout) -> torch.Tensor:
        bounds: dict[str, Any] = {} if dtype is torch.bool else {"min": least, "max": most}
        element = TensorElement("torch.Tensor", str(dtype), tuple(size), **bounds)
        drawn = Drawing(drawing.values, drawing.seed, layout=layout).tensor(element)
        return drawn.detach().requires_grad_(requires_grad)

    values = st.lists(_values(dtype, least, most), min_size=1, max_size=_MOST_VALUES).map(tuple)
    drawings = st.one_of(st.builds(Drawing, values=values), st.builds(Drawing, seed=_SEEDS))
    return st.builds(made, sizes, drawings, layouts)


def _as_strategy(size: int | st.SearchStrategy[int]) -> st.SearchStrategy[int]:
    return st.just(size) if isinstance(size, int) else size


def _values(dtype: torch.dtype, low: float, high: float) -> st.SearchStrategy[Any]:
    if dtype is torch.bool:
        return st.booleans()
    if dtype.is_complex:
        part = _floats(dtype.to_real(), low, high)
        return st.builds(complex, part, part)
    if dtype.is_floating_point:
        return _floats(dtype, low, high)
    return st.integers(math.ceil(low), math.floor(high))


def _floats(dtype: torch.dtype, low: float, high: float) -> st.SearchStrategy[float]:
    special = special_values(dtype)
    listed = [*_SIMPLE, *(value for focus in _SPECIAL for value in special[focus])]
    within = [value for value in listed if low <= value <= high]
    anywhere = st.floats(low, high)
    return st.one_of(st.sampled_from(within), anywhere) if within else anywhere
