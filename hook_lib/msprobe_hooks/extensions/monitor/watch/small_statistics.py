"""The statistics of many small tensors on a CPU, laid end to end: one reduction for all costs what one for each does.

Their elements are copied when they are measured, and reduced when the numbers are asked for, as at the end of a step.
Definitions are those of ``batched_statistics``; all is in float64.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# Elements that are copied at most and reduced at once: 1 MiB in float64, which a core's own cache holds.
_TOGETHER = 1 << 17


class Copied:
    """The statistics of a tensor whose elements were copied; ``values`` is None until they are reduced."""

    __slots__ = ("count", "has_dimensions", "values")

    def __init__(self, tensor: Tensor) -> None:
        self.count = tensor.numel()
        self.has_dimensions = tensor.dim() > 0
        self.values: tuple[float, ...] | None = None


class SmallTensors:
    """Copies of small tensors of one dtype, of which the named statistics are wanted.

    ``eps`` is the size below which an element counts as zero. Threads of a training may measure at once.
    """

    def __init__(self, dtype: torch.dtype, statistics: Sequence[str], eps: float) -> None:
        self._dtype, self._statistics, self._eps = dtype, statistics, eps
        self._lock = threading.Lock()
        self._elements: list[Tensor] = []
        self._copied: list[Copied] = []
        self._count = 0

    def copy(self, tensors: Sequence[Tensor]) -> list[Copied]:
        """Copy the elements of tensors, none of which is empty."""
        elements = torch.cat([tensor.reshape(-1) for tensor in tensors])
        copied = [Copied(tensor) for tensor in tensors]
        with self._lock:
            if self._count + len(elements) > _TOGETHER:
                self._reduce()
            self._elements.append(elements)
            self._copied += copied
            self._count += len(elements)
        return copied

    def reduce(self) -> None:
        """Compute the statistics of what was copied since, and drop the copies."""
        with self._lock:
            self._reduce()

    def _reduce(self) -> None:
        if not self._copied:
            return
        elements = torch.cat(self._elements)
        values = (elements.abs() if elements.is_complex() else elements).double().numpy()
        laid = _Laid(self._dtype, self._copied, values, self._eps)
        with np.errstate(all="ignore"):
            columns = [_COLUMNS[name](laid).tolist() for name in self._statistics]
        for copied, row in zip(self._copied, zip(*columns, strict=True), strict=True):
            copied.values = row
        self._elements, self._copied, self._count = [], [], 0


class _Laid:
    """Elements of tensors end to end, in float64; each method gives one statistic of every tensor."""

    def __init__(self, dtype: torch.dtype, copied: Sequence[Copied], values: NDArray[np.float64], eps: float) -> None:
        self._dtype, self._copied = dtype, copied
        self._values = values
        counts = np.array([one.count for one in copied], np.int64)
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
        limit = self._eps if self._dtype.itemsize > 4 else float(np.float32(self._eps))
        return self._sums(np.abs(self._values) < limit) / self._counts

    def nans(self) -> NDArray[np.float64]:
        return self._sums(np.isnan(self._values))

    def subnormals(self) -> NDArray[np.float64]:
        least = torch.finfo(self._dtype).smallest_normal if self._dtype.is_floating_point else 0.0
        sizes = np.abs(self._values)
        return self._sums((sizes > 0) & (sizes < least)) / self._counts

    def id(self) -> NDArray[np.float64]:
        has_dimensions = np.array([one.has_dimensions for one in self._copied])
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
