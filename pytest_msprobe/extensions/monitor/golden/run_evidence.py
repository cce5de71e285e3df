"""What a pair of runs shows as a whole, on which the tolerance of each of its series depends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.extensions.monitor.series.reader import Series
from msprobe_hooks.extensions.monitor.series.tables import Watched
from pytest_msprobe.extensions.monitor.golden.differences import Numbers, decimals, quantum
from pytest_msprobe.extensions.monitor.golden.paired_series import Twins
from pytest_msprobe.extensions.monitor.golden.running_median import Pool
from pytest_msprobe.extensions.monitor.golden.series_tolerance import (
    CANCELLATION,
    DRIFTED,
    SWITCH,
    SWITCHES,
    UNIT_ROUNDOFF,
    before,
    dtype_of,
    so_far,
)
from pytest_msprobe.extensions.monitor.series_kinds import GRADIENTS, Kind, Kinds

#: Tensors whose statistics are seen together: those of one task and kind.
Group = tuple[str, Kind, str]

# A gradient that only rounding makes differs at once, so a few steps show it.
_STEPS_OF_NOISE, _NOISY = 8, 0.05


class Evidence:
    """What all series of a pair show together, at each of ``steps`` (int64, ascending).

    It takes tensors one after another, whose ``kinds`` it is given, and keeps little of each.
    """

    def __init__(self, steps: NDArray[np.int64], kinds: Kinds) -> None:
        self.steps = steps
        self.kinds: set[Kind] = set()
        self._kinds = kinds
        self._apart: defaultdict[Group, Pool] = defaultdict(self._pool)
        self._spread: defaultdict[Group, Pool] = defaultdict(self._pool)
        self._largest: defaultdict[Group, Numbers] = defaultdict(lambda: np.zeros(len(steps)))
        self._decimals = [0, 0]
        self._dtypes: set[str] = set()
        self._minima: set[bool] = set()
        self._zeros_watched = False
        self._switched: NDArray[np.bool_] = np.zeros(len(steps), np.bool_)
        self._noise: defaultdict[str, list[tuple[Group, np.intp, float]]] = defaultdict(list)

    def see(self, tensor: Watched, both: Twins) -> None:
        """Take the next tensor of the pair."""
        places = self.places(both.steps)
        kind = self._kinds.of(tensor)
        self.kinds.add(kind)
        for statistic in both.continuous:
            group, size, difference = (tensor.task, kind, statistic), both.size(statistic), both.difference(statistic)
            np.maximum.at(self._largest[group], places, size)
            self._apart[group].add(places, so_far(difference))
            for side, values in enumerate((both.target[statistic], both.golden[statistic])):
                self._decimals[side] = max(self._decimals[side], decimals(values))
            if kind is Kind.PARAMETER_GRADIENT:
                self._see_noise(tensor.name, group, places, difference, size)
        if kind is Kind.ACTIVATION_GRADIENT and "zeros" in both.target:
            self._zeros_watched = True
            self._switched[places[both.target["zeros"] != both.golden["zeros"]]] = True

    def see_golden(self, tensor: Watched, golden: Mapping[str, Series]) -> None:
        """Take a tensor of the golden run, which the other need not have."""
        extremes = [golden[name].values for name in ("min", "max") if name in golden]
        if len(extremes) < 2 or all(np.array_equal(np.rint(each), each) for each in extremes):
            return  # integers are indices or masks
        low, high = extremes
        if self._kinds.of(tensor) is Kind.ACTIVATION:
            self._minima.add(bool(np.all(low == 0) and np.any(high > 0)))
        if self._is_rounding(tensor, np.maximum(abs(low), abs(high))):
            return  # a few units of the last place of larger terms, which any dtype holds
        dtype = dtype_of(np.concatenate(extremes), self.quantum)
        if dtype is not None:
            self._dtypes.add(dtype)

    def see_spread(self, tensor: Watched, statistic: str, steps: NDArray[np.int64], spread: Numbers) -> None:
        """Take how far golden runs are apart in a series up to each step."""
        self._spread[self.group(tensor, statistic)].add(self.places(steps), spread)

    def group(self, tensor: Watched, statistic: str) -> Group:
        """Return which tensors a tensor is seen with."""
        return tensor.task, self._kinds.of(tensor), statistic

    def places(self, steps: NDArray[np.int64]) -> NDArray[np.intp]:
        """Return where steps stand among those of the pair."""
        return np.clip(np.searchsorted(self.steps, steps, side="right") - 1, 0, None)

    @property
    def dtype(self) -> str | None:
        """The least precise dtype of a tensor, as mixed precision rounds to it; None where it is unknown."""
        return max(self._dtypes, key=UNIT_ROUNDOFF.__getitem__, default=None)

    @property
    def quantum(self) -> float:
        """What the files of the run that is rounded more rounded values to."""
        return max(map(quantum, self._decimals))

    @property
    def is_smooth(self) -> bool:
        """Whether forward tensors are watched and none is cut off at zero, as by a ReLU."""
        return self._minima == {False}

    def level(self, group: Group) -> Numbers:
        """Return how far most series of a group were apart before each step, and golden runs up to it."""
        return np.maximum(before(self._apart[group].median()), self._spread[group].median())

    def gradients(self, statistic: str) -> Numbers:
        """Return how far most gradients were apart up to each step."""
        pools = [
            pool
            for pools in (self._apart, self._spread)
            for (_, kind, of), pool in pools.items()
            if kind in GRADIENTS and of == statistic
        ]
        widest: Numbers = np.max([np.zeros(len(self.steps)), *(pool.median() for pool in pools)], axis=0)
        return widest

    def largest(self, group: Group) -> Numbers:
        """Return the largest size of a group's tensors at each step."""
        return self._largest[group]

    @cached_property
    def switches(self) -> Numbers:
        """The floor of gradients at each step: what units that switch change of them.

        Where shares of zeros are watched they show the steps, for gradients on either side of the unit alike.
        """
        if self.is_smooth:
            return np.zeros(len(self.steps))
        statistics = {statistic for _, kind, statistic in self._apart if kind in GRADIENTS}
        apart = np.max([np.zeros(len(self.steps)), *map(self.gradients, statistics)], axis=0)
        floor = np.where(before(apart) > DRIFTED, SWITCHES, SWITCH)
        return np.where(self._switched, floor, 0.0) if self._zeros_watched else floor

    def driven_by_noise(self, unit_roundoff: float) -> list[str]:
        """Return the parameters whose gradients are zero but for rounding, so that they wander as rounding has it."""
        return [
            name
            for name, differences in self._noise.items()
            if any(apart <= CANCELLATION * unit_roundoff * self._largest[group][at] for group, at, apart in differences)
        ]

    def _is_rounding(self, tensor: Watched, size: Numbers) -> bool:
        """Return whether a tensor is so small next to the others of its group that float32's roundings can make it."""
        largest = np.max(self._largest[self.group(tensor, "max")], initial=0.0)
        return bool(np.all(size <= CANCELLATION * UNIT_ROUNDOFF["float32"] * largest))

    def _pool(self) -> Pool:
        return Pool(len(self.steps))

    def _see_noise(self, name: str, group: Group, places: NDArray[np.intp], difference: Numbers, size: Numbers) -> None:
        for index in np.flatnonzero((difference > _NOISY) & np.isfinite(difference))[:_STEPS_OF_NOISE]:
            self._noise[name].append((group, places[index], float(difference[index] * size[index])))
