"""Gradients of two runs by the signs of their elements: how many agree, and how many do where runs are honest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.grad_probe.sign_maps import ProbedRank, open_rank
from msprobe_hooks.extensions.monitor.series.reader import Run, Series, SeriesKey, open_run
from pytest_msprobe.extensions.monitor.golden.rank_pair import Compared, Pair
from pytest_msprobe.extensions.monitor.golden.series_tolerance import (
    UNIT_ROUNDOFF,
    Numbers,
    Pool,
    Statistics,
    before,
    cancellation_floor,
    so_far,
    tolerance,
)
from pytest_msprobe.extensions.monitor.judging import SignSimilarity
from pytest_msprobe.extensions.monitor.series_names import Kind

#: The task of sign similarities: a probe measures where it does, just before the optimizer's step.
TASK = "grad_reduced"

# Elements that pass zero in one of two honest runs, of a gradient that is too small for shares: two of 16 weights of a
# batch normalization did.
_FEW = 3.0
# Half of a vector's elements may be zero but for rounding, as those of the keys in a fused bias of keys and values:
# half of their signs differ, give or take four standard deviations, 4 √(1/2 · 1/4) / √n. Measured: 11 to 20 %.
_VECTOR, _SPREAD = 0.25, 1.4
# A gradient that only rounding makes had a norm of at most 0.8 roundings of the largest gradient.
_ROUNDINGS = 4.0
# Biases are what cancels, and clipping hides from their values that they were computed in bfloat16.
_OF_VECTORS = UNIT_ROUNDOFF["bfloat16"]


@dataclass(frozen=True, slots=True)
class Probed:
    """Files that a gradient probe wrote for one rank: the sign maps, and their summaries as series."""

    maps: ProbedRank
    summaries: Run


def probed(run: Run) -> Probed | None:
    """Return what a probe wrote in a rank's folder, or in ``rank<N>`` next to it; None where it left no sign maps.

    Raises MonitorError where its summaries cannot be read.
    """
    neighbour = [] if run.rank is None else [run.folder.parent / f"rank{run.rank}"]
    for folder in (run.folder, *neighbour):
        try:
            maps = open_rank(folder)
        except MonitorError:
            continue
        if maps.steps:
            return Probed(maps, open_run(folder))
    return None


@dataclass(frozen=True, slots=True)
class _Flips:
    """The share of a gradient's elements whose signs differ, at ``steps`` (int64): both of shape (steps,)."""

    steps: NDArray[np.int64]
    shares: Numbers
    elements: int
    is_vector: bool


class Signs:
    """The sign similarities of one rank of two runs, and of golden reruns that show what is honest.

    All maps of both runs are read when the first gradient is compared.
    """

    def __init__(self, target: Probed, golden: Probed, reruns: Sequence[Probed], pair: Pair) -> None:
        """Take two runs and the ``pair`` of their summaries."""
        self._target, self._golden, self._reruns = target, golden, reruns
        self._pair = pair
        self.keys: Sequence[SeriesKey] = [
            SeriesKey(*tensor, SignSimilarity.name) for tensor in pair.tensors if tensor.task == TASK
        ]

    def series(self, key: SeriesKey) -> Series:
        """Return the share of a gradient's elements that have the same sign in both runs, step by step."""
        flips = self._flips[key.name]
        return Series(key, flips.steps, 1 - flips.shares)

    def is_rounding(self, key: SeriesKey) -> bool:
        """Return whether rounding may decide half of a gradient's signs at every step."""
        return bool((self._explained_by_rounding(key) >= 0.5).all())

    def compare(self, key: SeriesKey, rule: SignSimilarity) -> Compared:
        """Compare a gradient: the difference is the share of signs that differ.

        It is held against the step before, and not the best of all: honest runs drift apart step by step. Nor is a
        share too many that is no more than 32 times those seen before, as for any other series.
        """
        flips = self._flips[key.name]
        shares = flips.shares
        allowed = tolerance(
            np.maximum(self._explained_by_rounding(key), _floor(flips)),
            before(so_far(shares)),
            self._level[self._places(flips.steps)],
            self._spread(key, flips.steps),
        )
        allowed = np.maximum(allowed, np.concatenate([[1 - rule.first], shares[:-1] + rule.drop])[: len(shares)])
        if not self._pair.starts_together:
            allowed = np.where(flips.steps == self._pair.first_step, np.inf, allowed)
        return Compared(flips.steps, 1 - shares, np.ones(len(shares)), shares, allowed)

    @cached_property
    def _flips(self) -> dict[str, _Flips]:
        return {key.name: self._between(key, self._target, self._golden) for key in self.keys}

    def _between(self, key: SeriesKey, one: Probed, other: Probed) -> _Flips:
        """Compare the maps of a gradient at the steps at which both runs had it."""
        norm = SeriesKey(*key.watched, "norm")
        steps = np.intersect1d(one.summaries.read(norm).steps, other.summaries.read(norm).steps)
        steps = steps[np.isin(steps, one.maps.steps) & np.isin(steps, other.maps.steps)]
        shares, elements, is_vector = np.zeros(len(steps)), 0, False
        for place, step in enumerate(steps.tolist()):
            ours, theirs = one.maps.signs(step, key.name), other.maps.signs(step, key.name)
            if ours.shape != theirs.shape:
                raise MonitorError(
                    f"{key.name} at step {step}: shape {ours.shape} in {one.maps.folder}, {theirs.shape} in "
                    f"{other.maps.folder}; monitor both runs with the same model and parallel layout"
                )
            elements, is_vector = ours.size, ours.ndim < 2
            shares[place] = np.count_nonzero(ours != theirs) / max(elements, 1)
        return _Flips(steps, shares, elements, is_vector)

    @cached_property
    def _level(self) -> Numbers:
        """Return how many signs of most gradients differed before each of the pair's steps."""
        pool = Pool(len(self._pair.steps))
        for flips in self._flips.values():
            pool.add(self._places(flips.steps), so_far(flips.shares))
        return before(pool.median())

    def _spread(self, key: SeriesKey, steps: NDArray[np.int64]) -> Numbers:
        """Return how many signs differ between golden runs, up to each step."""
        spread = np.zeros(len(steps))
        runs = [self._golden, *(rerun for rerun in self._reruns if key.watched in Statistics(rerun.summaries))]
        for one, other in combinations(runs, 2):
            flips = self._between(key, one, other)
            at = np.searchsorted(flips.steps, steps, side="right")
            spread = np.maximum(spread, np.concatenate([[0.0], so_far(flips.shares)])[at])
        return spread

    def _explained_by_rounding(self, key: SeriesKey) -> Numbers:
        """Return the share of signs that rounding may change of a gradient that cancels to little.

        Of normally distributed elements, noise of r times their size changes the signs of arctan(r) / pi, which is less
        than r / pi.
        """
        flips, both = self._flips[key.name], self._pair.read(key.watched)
        largest = self._pair.evidence.largest((TASK, Kind.PARAMETER_GRADIENT, "norm"))[self._places(both.steps)]
        unit_roundoff = max(self._pair.unit_roundoff, _OF_VECTORS if flips.is_vector else 0.0)
        noise = cancellation_floor(unit_roundoff, largest, both.size("norm"), _ROUNDINGS) / np.pi
        explained: Numbers = noise[np.searchsorted(both.steps, flips.steps)]
        return explained

    def _places(self, steps: NDArray[np.int64]) -> NDArray[np.intp]:
        return self._pair.evidence.places(steps)


def _floor(flips: _Flips) -> float:
    """Return the share of signs that chance may change of a gradient with so many elements."""
    elements = max(flips.elements, 1)
    few = _FEW / elements
    return max(few, _VECTOR + _SPREAD / elements**0.5) if flips.is_vector else few
