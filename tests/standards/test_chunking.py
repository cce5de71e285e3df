"""Inner products in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from msprobe_standards.chunking import dot

if TYPE_CHECKING:
    from numpy.typing import NDArray


def of_halves(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Return the inner product of two arrays as that of their halves, down to 8192 elements."""
    if x.size <= 8192:
        return float(np.dot(x, y))
    half = x.size // 2
    return of_halves(x[:half], y[:half]) + of_halves(x[half:], y[half:])


@pytest.mark.parametrize("size", [0, 1, 8192, 16384, 24_576, 32_768, 65_536, 70_001, 131_072])
def test_inner_products_have_the_bits_of_a_sum_of_halves(size: int) -> None:
    x, y = np.random.default_rng(size).standard_normal((2, size))
    assert dot(x, y) == of_halves(x, y)
    assert dot(x, x) == of_halves(x, x)
