"""The statistics of many small tensors on a CPU, laid end to end: one reduction for all costs what one for each does.

Definitions are those of ``statistics``; all is in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# At most of 2**13 elements each: 4 MiB in float64.
_TOGETHER = 64


def measure_small(tensors: Sequence[Tensor], statistics: Sequence[str], eps: float) -> list[tuple[float, ...]]:
    """Return the named statistics of tensors of one dtype, none of which is empty."""
    found: list[tuple[float, ...]] = []
    for start in range(0, len(tensors), _TOGETHER):
        found += _measure(tensors[start : start + _TOGETHER], statistics, eps)
    return found


def _measure(tensors: Sequence[Tensor], statistics: Sequence[str], eps: float) -> list[tuple[float, ...]]:
    elements = torch.cat([tensor.reshape(-1) for tensor in tensors])
    laid = _Laid(tensors, (elements.abs() if elements.is_complex() else elements).double().numpy(), eps)
    with np.errstate(all="ignore"):
        columns = [_COLUMNS[name](laid).tolist() for name in statistics]
    return list(zip(*columns, strict=True))


class _Laid:
    """Elements of tensors end to end, in float64; each method gives one statistic of every tensor."""

    def __init__(self, tensors: Sequence[Tensor], values: NDArray[np.float64], eps: float) -> None:
        self._tensors = tensors
        self._values = values
        counts = np.array([tensor.numel() for tensor in tensors], np.int64)
        self._counts = counts.astype(np.float64)
        self._starts = np.cumsum(counts) - counts
        self._eps = eps

    def norm(self) -> NDArray[np.float64]:
        return np.sqrt(self._sums(self._values * self._values))

    def rms(self) -> NDArray[np.float64]:
        return self.norm() / np.sqrt(self._counts)

    def min(self) -> NDArray[np.float64]:
        return np.minimum.reduceat(self._values, self._starts)

    def max(self) -> NDArray[np.float64]:
        return np.maximum.reduceat(self._values, self._starts)

    def mean(self) -> NDArray[np.float64]:
        return self._sums(self._values) / self._counts

    def zeros(self) -> NDArray[np.float64]:
        # As torch compares: with the limit in float32, unless the elements are wider.
        limit = self._eps if self._tensors[0].dtype.itemsize > 4 else float(np.float32(self._eps))
        return self._sums(np.abs(self._values) < limit) / self._counts

    def nans(self) -> NDArray[np.float64]:
        return self._sums(np.isnan(self._values))

    def subnormals(self) -> NDArray[np.float64]:
        dtype = self._tensors[0].dtype
        least = torch.finfo(dtype).smallest_normal if dtype.is_floating_point else 0.0
        sizes = np.abs(self._values)
        return self._sums((sizes > 0) & (sizes < least)) / self._counts

    def id(self) -> NDArray[np.float64]:
        has_dimensions = np.array([tensor.dim() > 0 for tensor in self._tensors])
        return np.where(has_dimensions, math.nan, self._values[self._starts])

    def _sums(self, terms: NDArray[np.float64] | NDArray[np.bool_]) -> NDArray[np.float64]:
        return np.add.reduceat(terms, self._starts, dtype=np.float64)


_COLUMNS: Mapping[str, Callable[[_Laid], NDArray[np.float64]]] = {
    "norm": _Laid.norm,
    "min": _Laid.min,
    "max": _Laid.max,
    "zeros": _Laid.zeros,
    "nans": _Laid.nans,
    "id": _Laid.id,
    "mean": _Laid.mean,
    "rms": _Laid.rms,
    "subnormals": _Laid.subnormals,
}
