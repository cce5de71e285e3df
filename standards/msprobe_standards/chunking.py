"""Two tensors side by side in parts that stay in the processor's cache, and the inner product of such parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

CHUNK = 16384
"""Elements in a part: 128 KiB as float64."""

# OpenBLAS, numpy's BLAS, computes inner products of more than 10 000 elements on several threads: the sums, and so what
# is measured, would depend on their number.
_BLAS_SINGLE_THREAD = 8192

# So many elements are worth a call that takes all pieces at once.
_MANY = 32768


def chunks(
    target: torch.Tensor, golden: torch.Tensor, first: int = 0, length: int = CHUNK
) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """Yield (flat offset, target part, golden part) in index order.

    Only non-contiguous tensors are copied, and those part by part.

    Args:
        target: A plain tensor.
        golden: A plain tensor of the same shape.
        first: The flat offset of the first element.
        length: The most elements of a part.

    Yields:
        The offset, and both parts, which are flat.
    """
    count = target.numel()
    if count <= length:
        yield first, target.reshape(-1), golden.reshape(-1)
    elif target.is_contiguous() and golden.is_contiguous():
        target, golden = target.view(-1), golden.view(-1)
        for start in range(0, count, length):
            yield first + start, target[start : start + length], golden[start : start + length]
    else:
        inner = count // target.shape[0]
        rows = max(1, length // inner)
        for row in range(0, target.shape[0], rows):
            if rows == 1:
                yield from chunks(target[row], golden[row], first + row * inner, length)
            else:
                ours, theirs = target[row : row + rows], golden[row : row + rows]
                yield from chunks(ours, theirs, first + row * inner, length)


def dot(x: Floats, y: Floats) -> float:
    """Return the inner product, in pieces too short for BLAS to start threads on."""
    if x.size <= _BLAS_SINGLE_THREAD:
        return float(np.dot(x, y))
    if x.size >= _MANY and not x.size & (x.size - 1):
        return _dot_of_halves(x, y)
    half = x.size // 2
    return dot(x[:half], y[:half]) + dot(x[half:], y[half:])


def _dot_of_halves(x: Floats, y: Floats) -> float:
    """Return what `dot` does of contiguous arrays whose size is a power of two, with one call for all pieces."""
    products = np.matmul(x.reshape(-1, 1, _BLAS_SINGLE_THREAD), y.reshape(-1, _BLAS_SINGLE_THREAD, 1)).reshape(-1)
    while products.size > 1:
        products = products[::2] + products[1::2]
    return float(products[0])
