"""One rank of a run and of a golden run: where each series leaves its tolerance, by the evidence of the whole run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.extensions.monitor.series.reader import Series, SeriesKey
from msprobe_hooks.extensions.monitor.series.tables import Watched
from pytest_msprobe.extensions.monitor.golden.series_tolerance import (
    BIAS,
    CANCELLATION,
    COARSE,
    DRIFTED,
    MOVED,
    SWITCH,
    SWITCHES,
    UNIT_ROUNDOFF,
    Numbers,
    Pool,
    Source,
    Statistics,
    Twins,
    are_scaled,
    before,
    cancellation_floor,
    decimals,
    dtype_of,
    quantum,
    rounding_floor,
    so_far,
    tolerance,
    twins,
)
from pytest_msprobe.extensions.monitor.series_names import (
    FROM_GRADIENTS,
    GRADIENTS,
    PARAMETERS,
    Kind,
    Kinds,
    kind_of,
    parameter_name,
)

#: Tensors whose statistics are seen together: those of one task and kind.
Group = tuple[str, Kind, str]

# A gradient that only rounding makes differs at once, so a few steps show it.
_STEPS_OF_NOISE, _NOISY = 8, 0.05


class Evidence:
    """Evidence of all series of a pair together, at each of ``steps`` (int64, ascending).

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
        """Return what the files of the run that is rounded more rounded values to."""
        return max(map(quantum, self._decimals))

    @property
    def is_smooth(self) -> bool:
        """Return whether forward tensors are watched and none is cut off at zero, as by a ReLU."""
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


# Where elements near zero decide, or where nothing shows whether gradients do.
_COARSE_KINDS = frozenset({Kind.RATIO, Kind.WITHOUT_GRADIENT, Kind.OTHER})


@dataclass(frozen=True, slots=True)
class Compared:
    """A series of two runs at common ``steps``: its values, their relative ``difference`` and what is ``allowed``.

    All are of shape (steps,).
    """

    steps: NDArray[np.int64]
    target: Numbers
    golden: Numbers
    difference: Numbers
    allowed: Numbers

    @property
    def first_over(self) -> int | None:
        """The index of the first difference that is larger than allowed; None where there is none."""
        over = np.flatnonzero(self.difference > self.allowed)
        return int(over[0]) if over.size else None


class Pair:
    """Two runs of one rank, and golden reruns that show how far honest runs drift apart.

    ``dtype`` is what the runs compute in; where it is None the extremes of tensors show it, or it is float32. ``aside``
    are the two runs once more, to look at other series without giving up the neighbours that are read along.
    """

    def __init__(
        self,
        target: Source,
        golden: Source,
        reruns: Sequence[Source] = (),
        *,
        dtype: str | None = None,
        aside: tuple[Source, Source] | None = None,
    ) -> None:
        self._target, self._golden = Statistics(target), Statistics(golden)
        self._aside = tuple(Statistics(run) for run in aside or (target, golden))
        self._reruns = [Statistics(rerun) for rerun in reruns]
        self._dtype = dtype
        self.tensors = [tensor for tensor in self._golden.tensors if tensor in self._target]

    def compare(self, key: SeriesKey) -> Compared:
        """Compare a series that both runs have."""
        both = self.read(key.watched)
        values = both.target[key.statistic], both.golden[key.statistic]
        return Compared(both.steps, *values, both.difference(key.statistic), self.allowed(key, both))

    @cached_property
    def steps(self) -> NDArray[np.int64]:
        """The steps that both runs have of the first tensor of any task, ascending."""
        firsts = {tensor.task: tensor for tensor in reversed(self.tensors)}
        steps = [self.read(tensor).steps for tensor in reversed(firsts.values())]
        return np.unique(np.concatenate(steps)) if steps else np.empty(0, np.int64)

    @property
    def first_step(self) -> int | None:
        """The first step that both runs have; None where there is none."""
        return int(self.steps[0]) if self.steps.size else None

    @cached_property
    def starts_together(self) -> bool:
        """Return whether the first step is the first of both runs, so that nothing can have drifted before it."""
        first = next((tensor for tensor in self.tensors if self.read(tensor).steps.size), None)
        if first is None:
            return True
        starts = (next(iter(run.read(first).values())).steps[0] for run in (self._target, self._golden))
        return len({*starts}) == 1

    def read(self, tensor: Watched) -> Twins:
        """Return a tensor's statistics in both runs."""
        return twins(self._target.read(tensor), self._golden.read(tensor))

    @cached_property
    def evidence(self) -> Evidence:
        """Return what the pair shows as a whole."""
        evidence = Evidence(self.steps, self._kinds)
        for tensor in self.tensors:
            both = self.read(tensor)
            evidence.see(tensor, both)
            for statistic in both.continuous if self._reruns else ():
                evidence.see_spread(tensor, statistic, both.steps, self._spread(tensor, statistic, both.steps))
        for tensor in self._golden.tensors:
            evidence.see_golden(tensor, self._golden.read(tensor))
        return evidence

    @cached_property
    def unit_roundoff(self) -> float:
        """Half of the distance from 1 to the next number of the dtype that the runs compute in."""
        return UNIT_ROUNDOFF[self._dtype or self.evidence.dtype or "float32"]

    def allowed(self, key: SeriesKey, both: Twins) -> Numbers:
        """Return the relative difference that a series may have at each of the steps of both runs."""
        evidence, tensor = self.evidence, key.watched
        kind, group = self._kinds.of(tensor), self.evidence.group(tensor, key.statistic)
        if key.statistic == "nans":
            return np.zeros(len(both.steps))
        places, size = evidence.places(both.steps), both.size(key.statistic)
        floors = [
            cancellation_floor(self.unit_roundoff, evidence.largest(group)[places], size),
            self._rounding(tensor, size),
            evidence.quantum / np.where(size > 0, size, 1.0),
        ]
        levels = [
            before(so_far(both.difference(key.statistic))),
            evidence.level(group)[places],
            self._spread(tensor, key.statistic, both.steps),
        ]
        if kind in GRADIENTS or kind is Kind.COLLECTIVE:
            # A unit that switches changes elements, and never all of them by one factor.
            floors.append(np.where(are_scaled(both.target, both.golden), 0.0, evidence.switches[places]))
        if kind not in GRADIENTS:
            gradients = evidence.gradients(key.statistic)
            levels.append((gradients if kind in FROM_GRADIENTS else before(gradients))[places])
            levels.append(self._own_gradient(tensor, both.steps))
        if kind is Kind.ACTIVATION:
            has_switched = before(so_far(evidence.switches))[places] > 0
            floors += [self._biases(size, places), np.where(has_switched, MOVED, 0.0)]
        allowed = tolerance(np.max(np.broadcast_arrays(*floors), axis=0), *levels)
        # Runs that began apart have drifted by what their first common step shows.
        return allowed if self.starts_together else np.where(both.steps == self.first_step, np.inf, allowed)

    def _rounding(self, tensor: Watched, size: Numbers) -> Numbers:
        """Return what rounding explains; coarse where only what is not watched could show that more is honest."""
        evidence, kind = self.evidence, self._kinds.of(tensor)
        fine = rounding_floor(self.unit_roundoff, is_learnt=bool(self._reruns) and evidence.is_smooth)
        is_known = bool(self._reruns) or kind in GRADIENTS or Kind.PARAMETER_GRADIENT in evidence.kinds
        return np.full(len(size), fine if is_known and kind not in _COARSE_KINDS else COARSE)

    def _spread(self, tensor: Watched, statistic: str, steps: NDArray[np.int64]) -> Numbers:
        """Return how far golden runs are apart in a series, up to each step."""
        runs = [run.read(tensor) for run in (self._golden, *self._reruns) if statistic in run.names(tensor)]
        spread = np.zeros(len(steps))
        for one, other in combinations(runs, 2) if len(runs) > 1 else ():
            both = twins(one, other)
            if both.steps.size:
                at = np.searchsorted(both.steps, steps, side="right")
                spread = np.maximum(spread, np.concatenate([[0.0], so_far(both.difference(statistic))])[at])
        return spread

    @cached_property
    def _kinds(self) -> Kinds:
        return Kinds(self._golden.tensors)

    @cached_property
    def _gradients(self) -> dict[tuple[int, str], list[Watched]]:
        """The gradients of each parameter, by its chunk and name."""
        found: dict[tuple[int, str], list[Watched]] = {}
        for tensor in self.tensors:
            if kind_of(tensor) is Kind.PARAMETER_GRADIENT:
                found.setdefault((tensor.vpp_stage, tensor.name), []).append(tensor)
        return found

    def _own_gradient(self, tensor: Watched, steps: NDArray[np.int64]) -> Numbers:
        """Return how far the gradients of the same parameter were apart when it was computed."""
        widest = np.zeros(len(steps))
        side: Literal["left", "right"] = "right" if kind_of(tensor) in FROM_GRADIENTS else "left"
        for gradient in self._gradients.get((tensor.vpp_stage, parameter_name(tensor)), ()):
            both = twins(*(run.read(gradient) for run in self._aside))
            at = np.searchsorted(both.steps, steps, side=side)
            for statistic in both.continuous:
                widest = np.maximum(widest, np.concatenate([[0.0], so_far(both.difference(statistic))])[at])
        return widest

    def _biases(self, size: Numbers, places: NDArray[np.intp]) -> Numbers:
        """Return what parameters that only rounding drives may change of a forward tensor that they are added to."""
        with np.errstate(divide="ignore", invalid="ignore"):
            floor = BIAS * self._wandered[places] / size
        return np.where(np.isnan(floor), 0.0, floor)

    @cached_property
    def _wandered(self) -> Numbers:
        """Return how far apart parameters that only rounding drives have been at each step, at most."""
        wandered = np.zeros(len(self.evidence.steps))
        driven = {*self.evidence.driven_by_noise(self.unit_roundoff)}
        for tensor in self.tensors:
            if kind_of(tensor) in PARAMETERS and parameter_name(tensor) in driven:
                both = self.read(tensor)
                for statistic in {"min", "max", "mean"} & {*both.target}:
                    apart = np.abs(both.target[statistic] - both.golden[statistic])
                    np.maximum.at(wandered, self.evidence.places(both.steps), apart)
        return so_far(wandered)
