"""Products of recorded matrices with bounds on how far from them right ones are, whatever order sums have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.matmul.packed_numbers import scale_and_offset
from pytest_msprobe.extensions.npu_operators.matmul.scaled_products import scaled_product

# Sums of products of floats are made in float32.
_INNER = torch.finfo(torch.float32).eps


@dataclass(frozen=True)
class Bounded:
    """Exact results in float64, and how far from each a right one may be."""

    value: Tensor
    error: Tensor

    def moved(self, move: Callable[[Tensor], Tensor]) -> Bounded:
        """Return both after a move of elements."""
        return Bounded(move(self.value), move(self.error))


def product(
    x: Tensor,
    weight: Tensor,
    unit: float,
    *,
    bias: Tensor | None = None,
    x_scale: Tensor | None = None,
    weight_scale: Tensor | None = None,
    bias_is_last: bool = False,
    of_operands: float = 0.0,
) -> Bounded:
    """Return x @ weight with scales and bias, whose result is rounded by ``unit``, the distance of 1 from the next.

    The bound is that of sums in float32 (Higham, Accuracy and Stability of Numerical Algorithms, 2002, 3.1) and one
    rounding of the result; ``of_operands`` is how far an operand may be from its value, as a share of it.
    """
    factor = None if weight_scale is None else scale_and_offset(weight_scale)[0]
    added = None if bias_is_last else bias
    value = scaled_product(x, weight, factor, x_scale, bias=added)
    magnitudes = [None if scale is None else scale.double().abs() for scale in (factor, x_scale)]
    size = scaled_product(x.double().abs(), weight.double().abs(), *magnitudes)
    if bias is not None and bias_is_last:
        value = value + bias.double()
    if bias is not None and bias.is_floating_point():
        size = size + bias.double().abs()
    steps = x.shape[-1] if x.is_floating_point() else 1
    return Bounded(value, unit * value.abs() + (steps * _INNER + of_operands) * size)


def total(parts: Sequence[Bounded], unit: float) -> Bounded:
    """Return the sum of what ranks give, each sum of two of them rounded by ``unit``."""
    value = torch.stack([part.value for part in parts]).sum(0)
    error = torch.stack([part.error + len(parts) * unit * part.value.abs() for part in parts]).sum(0)
    return Bounded(value, error)


def joined(parts: Sequence[Bounded]) -> Bounded:
    """Return results one below the other."""
    return Bounded(torch.cat([part.value for part in parts]), torch.cat([part.error for part in parts]))
