"""The statistics of a monitored training, of an array on the host; their definitions are those of ``statistics``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.extensions.monitor.series.tables import BINS, RANGE

# Elements of which there are copies in float64 at a time.
_PART = 1 << 20


class HostMeter:
    """Computes the named statistics of tensors, each brought to the host; ``eps`` is the size below which one is 0."""

    def __init__(self, statistics: Sequence[str], eps: float, host: Callable[[Any], NDArray[Any]]) -> None:
        self.statistics = tuple(statistics)
        self._eps = eps
        self._host = host

    def measure(self, tensors: Sequence[Any]) -> list[tuple[float, ...]]:
        """Return the statistics of each tensor."""
        return [measure(self._host(tensor), self.statistics, self._eps) for tensor in tensors]

    def fetch(self, rows: Sequence[tuple[float, ...]]) -> Sequence[tuple[float, ...]]:
        """Return what is there already."""
        return rows

    def distribution(self, tensor: Any) -> NDArray[np.int64]:
        """Return how many elements are in each bin of a heat map."""
        return np.histogram(self._host(tensor).astype(np.float32), BINS, RANGE)[0]


def measure(array: NDArray[Any], statistics: Sequence[str], eps: float) -> tuple[float, ...]:
    """Return the named statistics, NaN where the array is empty or holds no numbers. Sums are in float64."""
    if array.size == 0 or array.dtype.kind not in "biufc":
        return (math.nan,) * len(statistics)
    real = np.abs(array) if array.dtype.kind == "c" else array
    with np.errstate(all="ignore"):
        found = _numbers(real.reshape(-1), eps)
    found["id"] = math.nan if array.ndim else float(real)
    return tuple(found[name] for name in statistics)


def _numbers(flat: NDArray[Any], eps: float) -> dict[str, float]:
    count = flat.size
    least_normal = float(np.finfo(flat.dtype).smallest_normal) if flat.dtype.kind == "f" else 0.0
    total = squares = 0.0
    zeros = nans = subnormals = 0
    for start in range(0, count, _PART):
        part = flat[start : start + _PART].astype(np.float64)
        size = np.abs(part)
        total += float(part.sum())
        squares += float(np.dot(part, part))
        zeros += int(np.count_nonzero(size < eps))
        nans += int(np.count_nonzero(np.isnan(part)))
        subnormals += int(np.count_nonzero((size > 0) & (size < least_normal)))
    norm = math.sqrt(squares)
    return {
        "norm": norm,
        "rms": norm / math.sqrt(count),
        "min": float(flat.min()),
        "max": float(flat.max()),
        "mean": total / count,
        "zeros": zeros / count,
        "nans": float(nans),
        "subnormals": subnormals / count,
    }
