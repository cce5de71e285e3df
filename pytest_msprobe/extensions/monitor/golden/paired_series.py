"""A watched tensor in two runs: all of its statistics, at the steps that both have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.extensions.monitor.series.reader import Series, SeriesKey
from msprobe_hooks.extensions.monitor.series.tables import Watched
from pytest_msprobe.extensions.monitor.golden.series_tolerance import CONTINUOUS, Numbers, relative_difference, scale


class Source(Protocol):
    """One rank's run as far as pairs read it."""

    @property
    def keys(self) -> Iterable[SeriesKey]:
        """The series, in the order computed."""

    def read(self, key: SeriesKey) -> Series:
        """Return one of them."""


class Statistics:
    """Statistics of each tensor of a run, by name, tensors in the order computed."""

    def __init__(self, run: Source) -> None:
        self._run = run
        self._names: dict[Watched, list[str]] = {}
        for key in run.keys:
            self._names.setdefault(key.watched, []).append(key.statistic)

    @property
    def tensors(self) -> Sequence[Watched]:
        """The tensors in the order computed."""
        return [*self._names]

    def __contains__(self, tensor: object) -> bool:
        return tensor in self._names

    def names(self, tensor: Watched) -> list[str]:
        """Return the statistics of a tensor, none where the run does not have it."""
        return self._names.get(tensor, [])

    def read(self, tensor: Watched) -> dict[str, Series]:
        """Return the series of a tensor by statistic."""
        return {name: self._run.read(SeriesKey(*tensor, name)) for name in self.names(tensor)}


@dataclass(frozen=True, slots=True)
class Twins:
    """The statistics of one tensor in two runs, by name, at common ``steps`` (int64, ascending)."""

    steps: NDArray[np.int64]
    target: Mapping[str, Numbers]
    golden: Mapping[str, Numbers]

    def size(self, statistic: str) -> Numbers:
        """Return what differences of a statistic are relative to: the larger of both runs, at each step."""
        return np.maximum(scale(statistic, self.target), scale(statistic, self.golden))

    def difference(self, statistic: str) -> Numbers:
        """Return the relative difference of a statistic at each step."""
        return relative_difference(self.target[statistic], self.golden[statistic], self.size(statistic))

    @property
    def continuous(self) -> list[str]:
        """The statistics that differences of rounding change by little."""
        return [name for name in CONTINUOUS if name in self.target]


def twins(target: Mapping[str, Series], golden: Mapping[str, Series]) -> Twins:
    """Align the statistics that two runs have of a tensor on the steps that all of them have."""
    names = [name for name in golden if name in target]
    every = [series.steps for name in names for series in (target[name], golden[name])]
    steps = reduce(_common, every) if every else np.empty(0, np.int64)
    at = {name: (_at(target[name], steps), _at(golden[name], steps)) for name in names}
    return Twins(steps, {name: both[0] for name, both in at.items()}, {name: both[1] for name, both in at.items()})


def _common(one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    # Most series share their steps.
    return one if np.array_equal(one, other) else np.intersect1d(one, other, assume_unique=True)


def _at(series: Series, steps: NDArray[np.int64]) -> Numbers:
    if len(series.steps) == len(steps):
        return series.values
    return series.values[np.searchsorted(series.steps, steps)]
