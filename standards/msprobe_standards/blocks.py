"""The numbers of `measure` for an output whose golden result comes block by block and is never there as a whole.

A block is a hyperrectangle of the output. Blocks together hold each element once, in any order. Sums are those of
`measure` in the order of the blocks; counts and maxima are equal.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from msprobe_standards.accumulation import Walk
from msprobe_standards.correlated_error import sample_step, shared_error_of
from msprobe_standards.dtypes import msprobe_bounds
from msprobe_standards.metrics import Metrics, groups_of, numbers_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe_standards.dtypes import Bounds

    Coordinates = tuple[NDArray[np.intp], ...]


def mean_magnitude(values: torch.Tensor) -> float:
    """Return the mean magnitude of a tensor's finite elements but those that are 0, in pieces; 0 where it has none."""
    total, count = Walk(values.dtype, frozenset(), msprobe_bounds(values.dtype)).magnitude(values)
    return total / count if count else 0.0


class BlockMeasure:
    """Measures one real floating-point output of ``shape`` and ``dtype``.

    ``only`` and ``bounds`` are those of `measure`; ``scale`` is golden's mean magnitude, of all elements but 0, that
    errors relate to, and may be an estimate: `golden_scale` is the exact value in the end.

    After two blocks of an output of shape (4, 6), its left and its right half::

        _starts      [(0, (0, 0), (4, 3)), (12, (0, 3), (4, 3))]     elements before, first index, shape
        _magnitudes  [9.5, 10.25]                                    sums of golden's, of all but zeros
        _sampled     [(places, target, golden), (...)]               sampled elements, by their place in the output
    """

    def __init__(
        self, shape: Sequence[int], dtype: torch.dtype, only: Collection[str], bounds: Bounds, scale: float
    ) -> None:
        self.shape = tuple(shape)
        self._dtype = dtype
        self._walk = Walk(dtype, groups_of(frozenset(only)), bounds)
        self._walk.scale = scale
        self._magnitudes: list[float] = []
        self._count = 0
        self._starts: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = []
        self._sampled: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        self._sample = self._spread() if "neighbours" in self._walk.groups else ()

    def add(self, starts: Sequence[int], target: torch.Tensor, golden: torch.Tensor) -> None:
        """Measure a block of the output, dense CPU tensors of one shape, that begins at the index ``starts``."""
        walk, first = self._walk, self._walk.count
        self._starts.append((first, tuple(starts), tuple(target.shape)))
        if walk.needs_scale:
            total, count = walk.magnitude(golden)
            self._magnitudes.append(total)
            self._count += count
        walk.over_block(target, golden, first)
        if self._sample:
            order, at = self._within(starts, target.shape)
            self._sampled.append((order, target[at], golden[at]))

    @property
    def golden_scale(self) -> float:
        """Golden's mean magnitude, as `measure` takes it; the given one where no wanted metric relates to it."""
        if not self._walk.needs_scale:
            return self._walk.scale
        return math.fsum(self._magnitudes) / self._count if self._count else 0.0

    @property
    def is_in_range(self) -> bool:
        """Return whether the numbers stand: squares stayed within float64, for which `measure` walks a second time."""
        return self._walk.is_squared_safely

    def metrics(self) -> Metrics:
        """Return the numbers of all blocks."""
        walk = self._walk
        numbers = numbers_of(walk)
        if self._sample:
            order, target, golden = (torch.cat(parts) for parts in zip(*self._sampled, strict=True))
            by_index, floor = order.argsort(), walk.bounds.shared_floor
            numbers["shared_error"], numbers["shared_z"] = shared_error_of(
                target[by_index], golden[by_index], self._dtype, floor
            )
        where = {name: self._index(position) for name, position in walk.where.items()}
        return Metrics(numbers, self._dtype, walk.count, where)

    def _spread(self) -> Coordinates:
        """Return the indices of the elements that are sampled for what neighbouring values share."""
        count = math.prod(self.shape)
        return np.unravel_index(np.arange(0, count, sample_step(count)), self.shape)

    def _within(self, starts: Sequence[int], shape: Sequence[int]) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Return which sampled elements lie in a block, and their indices relative to it."""
        local = [at - start for at, start in zip(self._sample, starts, strict=True)]
        inside = np.all([(at >= 0) & (at < size) for at, size in zip(local, shape, strict=True)], axis=0)
        return torch.from_numpy(np.flatnonzero(inside)), tuple(torch.from_numpy(at[inside]) for at in local)

    def _index(self, position: int) -> tuple[int, ...]:
        """Return the index in the output of the element that was met after so many others."""
        first, starts, shape = next(block for block in reversed(self._starts) if block[0] <= position)
        local = np.unravel_index(position - first, shape)
        return tuple(start + int(at) for start, at in zip(starts, local, strict=True))
