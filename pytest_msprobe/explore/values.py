"""What Hypothesis draws for a tensor: values of the recorded range, around it and special ones, and where they lie.

A drawing does not depend on the tensor's shape, so that shapes and values shrink independently of each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from hypothesis import strategies as st

from msprobe_hooks.schema import TensorElement
from pytest_msprobe.replay.dtypes import dtype_named
from pytest_msprobe.replay.random_inputs import finite_range, integer_range, random_tensor
from pytest_msprobe.replay.strides import lay_out

Layout = Literal["contiguous", "transposed", "gapped"]

# Sums overflow, or meet infinities of both signs on their way, as the order of summation will have it: "safe" leaves
# those out. Padding and masks meet zeros in some algorithms and nothing in others: "finite" leaves NaN out as well.
Special = Literal["none", "finite", "safe", "all"]

# Simplest first: what fails is shrunk towards the front.
_LAYOUTS: tuple[Layout, ...] = ("contiguous", "transposed", "gapped")
_MOST_VALUES = 12
_SEEDS = st.integers(0, 2**16)


@dataclass(frozen=True)
class Drawing:
    """How the elements of a tensor come about.

    ``values`` are repeated until the tensor is full. Without them elements are random, for ``seed``: whole numbers from
    -2 to 2 (``whole``), or like the recorded ones.
    """

    values: tuple[Any, ...] = ()
    seed: int = 0
    whole: bool = False
    layout: Layout = "contiguous"

    def tensor(self, element: TensorElement) -> torch.Tensor:
        """Return a CPU tensor of the element's shape and dtype."""
        dtype = dtype_named(element.dtype)
        return _laid_out(self._elements(element, dtype), self.layout)

    def _elements(self, element: TensorElement, dtype: torch.dtype) -> torch.Tensor:
        count = math.prod(element.shape)
        if self.values:
            repeated = (self.values * (count // len(self.values) + 1))[:count]
            return _cast(repeated, dtype).view(element.shape)
        if self.whole:
            generator = torch.Generator().manual_seed(self.seed)
            return torch.randint(-2, 3, element.shape, generator=generator).to(dtype)
        return random_tensor(element, self.seed)


def _cast(values: tuple[Any, ...], dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_complex:
        return torch.tensor(values, dtype=torch.complex128).to(dtype)
    if dtype.is_floating_point:
        return torch.tensor(values, dtype=torch.float64).to(dtype)
    return torch.tensor(values, dtype=dtype)


def _laid_out(tensor: torch.Tensor, layout: Layout) -> torch.Tensor:
    if layout == "contiguous" or not tensor.dim() or not tensor.numel():
        return tensor
    if layout == "transposed":
        return tensor.transpose(0, -1).contiguous().transpose(0, -1)
    return lay_out(tensor, [2 * step for step in tensor.stride()])


def drawings(element: TensorElement, *, special: Special) -> st.SearchStrategy[Drawing]:
    """Return the strategy for a recorded tensor; ``special`` says which special values of its dtype are mixed in."""
    dtype = dtype_named(element.dtype)
    values = st.lists(_values(element, dtype, special=special), min_size=1, max_size=_MOST_VALUES).map(tuple)
    cycles = st.builds(Drawing, values=values)
    ranges = st.builds(Drawing, seed=_SEEDS)
    is_number = dtype.is_floating_point or dtype.is_complex
    wholes = [st.builds(Drawing, seed=_SEEDS, whole=st.just(True))] if is_number else []
    # Random elements are never special ones.
    filled = [cycles] if special != "none" and is_number else [cycles, *wholes, ranges]
    if element.type == "numpy.ndarray":
        return st.one_of(filled)
    layouts = st.one_of(st.just(_LAYOUTS[0]), st.sampled_from(_LAYOUTS))
    return st.builds(lambda drawing, layout: replace(drawing, layout=layout), st.one_of(filled), layouts)


def _values(element: TensorElement, dtype: torch.dtype, *, special: Special) -> st.SearchStrategy[Any]:
    if dtype is torch.bool:
        return st.booleans()
    if dtype.is_complex:
        part = _floats(element, dtype.to_real(), special=special)
        return st.builds(complex, part, part)
    if dtype.is_floating_point:
        return _floats(element, dtype, special=special)
    # Whole numbers are indices, lengths and classes more often than not: only the recorded range is safe.
    return st.integers(*integer_range(element, dtype))


def _floats(element: TensorElement, dtype: torch.dtype, *, special: Special) -> st.SearchStrategy[float]:
    low, high = (bound + 0.0 for bound in finite_range(element, dtype))  # -0.0 becomes 0.0
    reach = min(2 * max(abs(low), abs(high), 1.0), torch.finfo(dtype).max)
    kinds = [
        st.integers(-4, 4).map(float),
        st.integers(-4, 4).map(lambda whole: whole + 0.5),
        st.floats(low, high),
        st.floats(-reach, reach),
    ]
    if special != "none":
        common, rare = special_values(dtype, special)
        kinds = [*kinds[:2], st.sampled_from(common), st.sampled_from(rare)]
    return st.one_of(kinds)


def special_values(dtype: torch.dtype, special: Special = "all") -> tuple[list[float], list[float]]:
    """Return the values of a float dtype at which implementations differ: those that matter everywhere, and others.

    The simplest come first.
    """
    limits = torch.finfo(dtype)
    smallest = limits.smallest_normal * limits.eps
    common = [0.0, -0.0, smallest]
    # Odd last bits: what is halved, added to one or rounded to fewer bits meets a tie.
    ties = [1 + limits.eps, 1 + 3 * limits.eps, limits.eps / 2, 1 / limits.eps + 1]
    small = [limits.smallest_normal, limits.smallest_normal - smallest, -smallest]
    if special in ("safe", "all"):
        common.append(math.nan)
    if special == "all":
        common += [math.inf, -math.inf, limits.max, -limits.max]
    return common, [*ties, *small]
