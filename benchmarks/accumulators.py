"""Devices that sum matrix products otherwise than the CPU does.

In other blocks of the inner dimension, in another order, or with partial sums rounded to the 16 bits of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from tests.corpus.fault import Launch, Variant
from tests.corpus.kernels import Multiply, product, working

Sum: TypeAlias = Callable[[list[torch.Tensor], torch.dtype], torch.Tensor]

PRODUCTS = frozenset({"linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum"})


def _one_after_the_other(parts: list[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    return sum(parts[1:], parts[0])


def _pairwise(parts: list[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    while len(parts) > 1:
        parts = [sum(parts[i + 1 : i + 2], parts[i]) for i in range(0, len(parts), 2)]
    return parts[0]


def _cut_off(parts: list[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """Return the sum that is rounded toward zero after each addition, as that of tensor cores."""
    total = parts[0]
    for part in parts[1:]:
        exact = total.double() + part.double()
        nearest = exact.float()
        total = torch.where(nearest.double().abs() > exact.abs(), torch.nextafter(nearest, torch.zeros(())), nearest)
    return total


def _narrow(parts: list[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """Return the sum that is rounded to a dtype after each addition."""
    total = parts[0].to(dtype)
    for part in parts[1:]:
        total = (total.float() + part).to(dtype)
    return total.float()


def _in_blocks(size: int, add: Sum) -> Multiply:
    def multiply(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        pairs = zip(working(left).split(size, -1), working(right).split(size, -2), strict=True)
        return add([ours @ theirs for ours, theirs in pairs], left.dtype)

    return multiply


def _interleaved(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    left, right = working(left), working(right)
    return _pairwise([left[..., i::4] @ right[..., i::4, :] for i in range(4)], left.dtype)


def _device(meaning: str, multiply: Multiply) -> Variant:
    def kernel(launch: Launch) -> Any:
        return product(launch, multiply)

    return Variant(meaning, meaning, PRODUCTS, kernel)


ACCUMULATORS: dict[str, Variant] = {
    name: _device(name, multiply)
    for name, multiply in (
        *((f"float32 in blocks of {size}", _in_blocks(size, _one_after_the_other)) for size in (16, 64, 256)),
        ("float32 in blocks of 32, added by pairs", _in_blocks(32, _pairwise)),
        ("float32 in four interleaved parts", _interleaved),
        ("float32, cut off after every 16 products", _in_blocks(16, _cut_off)),
        *((f"16 bits after every {size} products", _in_blocks(size, _narrow)) for size in (16, 128, 256)),
    )
}
"""By name; those that round partial sums to 16 bits give float32 products as in blocks."""
