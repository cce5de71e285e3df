"""Products of matrices, and the biases behind them."""

from __future__ import annotations

from torch import Tensor


def matmul(x: Tensor, y: Tensor, *, transpose_a: bool, transpose_b: bool) -> Tensor:
    """Return the product of matrices, or of batches of them, either of which may be transposed before."""
    return (x.mT if transpose_a else x) @ (y.mT if transpose_b else y)


def bias_add(x: Tensor, bias: Tensor, *, data_format: str) -> Tensor:
    """Return the input with a bias for each channel: the second axis, or the last one where the format says so."""
    behind = 0 if data_format.endswith("C") else x.dim() - 2
    return x + bias.reshape(-1, *[1] * behind)
