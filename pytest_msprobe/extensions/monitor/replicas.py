"""Ranks of one run held against each other: a parameter that several ranks hold alike stays alike on all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from msprobe_hooks.extensions.monitor.series.paths import rank_of
from msprobe_hooks.extensions.monitor.series.reader import Run, Series, SeriesKey, open_run
from msprobe_hooks.messages import listed
from pytest_msprobe.extensions.monitor.golden.series_tolerance import (
    CONTINUOUS,
    Numbers,
    Statistics,
    decimals,
    quantum,
    relative_difference,
    scale,
)
from pytest_msprobe.extensions.monitor.series_names import PARAMETERS, kind_of

#: What a rank's parameter begins with: the step and its statistics by name.
Beginning = tuple[int, tuple[tuple[str, float], ...]]

# As many changes that ranks went through alike, each of which shows, make a parameter theirs in common: an optimizer's
# first step may be its rate for every element, whatever the gradients are.
_CHANGES, _VISIBLE = 3, 8.0

# A sum of squares this close to a whole number may be of a constant such as 1; further off it is not known.
_WHOLE, _UNKNOWN = 1e-9, 0.05


@dataclass(frozen=True, slots=True)
class Parted:
    """A rank's parameter that is no longer that of the others, from a step on; ``others`` are the ranks that agree.

    Without ``was_equal`` it has not been the same since the first updates, as what is split over ranks is not.
    """

    step: int
    value: float
    other: float
    others: tuple[int, ...]
    difference: float
    was_equal: bool

    @property
    def reason(self) -> str:
        """Return what is wrong, in words that follow the statistic."""
        with_whom = f"rank {self.others[0]}" if len(self.others) == 1 else f"ranks {listed(map(str, self.others))}"
        known = "" if len(self.others) > 1 else "; which of the two is wrong is not known"
        since = (
            f"parted by {self.difference:.1e} after they were equal"
            if self.was_equal
            else "they began alike and part at the first updates: its gradient is not reduced, or each rank has its own"
        )
        return f"is {self.value:.9g}, on {with_whom} {self.other:.9g}: {since}{known}"


class Replicas:
    """The parameters of all ranks of a run, by the folders of these.

    ``limit`` returns the relative difference that a series may have between ranks, None where it is not judged.
    Which parameters are copies is read off their first values. Those that all elements of are one number, as a bias of
    zeros, say nothing: they are taken for copies where all other parameters of two ranks are.
    """

    def __init__(self, folders: Iterable[Path], limit: Callable[[SeriesKey], float | None]) -> None:
        self._folders = {rank_of(folder) or 0: folder for folder in folders}
        self._limit = limit

    def parted(self, rank: int | None, key: SeriesKey) -> Parted | None:
        """Return where a rank's series leaves those of the other ranks, None where it does not or is not judged."""
        return self._parted.get((rank or 0, key)) if kind_of(key) in PARAMETERS else None

    def is_compared(self, rank: int | None, key: SeriesKey) -> bool:
        """Return whether a rank's series is held against that of another rank."""
        return (rank or 0, key) in self._compared

    def notes(self) -> Iterator[str]:
        """Yield what was not compared between ranks, in sentences."""
        if not self._beginnings:
            return
        names = dict.fromkeys(name for beginnings in self._beginnings.values() for name in beginnings)
        if not names:
            yield "ranks not compared with each other: no parameters are monitored"
            return
        copies = {name for groups in self._groups.values() for name in groups}
        single = [name for name in names if name not in copies]
        if single:
            shown = listed((name for _, name in single), 3)
            yield (
                f"{len(single)} of {len(names)} parameters not compared between ranks: "
                f"each rank began with its own values, as where they are split ({shown})"
            )

    @cached_property
    def _beginnings(self) -> Mapping[int, Mapping[tuple[int, str], Beginning]]:
        """Return what each rank's parameters begin with, by chunk and name."""
        return {rank: _beginnings(Statistics(open_run(folder))) for rank, folder in self._folders.items()}

    @cached_property
    def _groups(self) -> dict[tuple[int, ...], list[tuple[int, str]]]:
        """The parameters that ranks hold alike, by these ranks."""
        whole = {rank: hash(frozenset(held.items())) for rank, held in self._beginnings.items()}
        alike: defaultdict[tuple[int, str], defaultdict[object, list[int]]] = defaultdict(lambda: defaultdict(list))
        for rank, held in self._beginnings.items():
            for name, beginning in held.items():
                alike[name][beginning, whole[rank] if _may_be_constant(dict(beginning[1])) else None].append(rank)
        groups: dict[tuple[int, ...], list[tuple[int, str]]] = {}
        for name, by_value in alike.items():
            for ranks in by_value.values():
                if len(ranks) > 1:
                    groups.setdefault(tuple(ranks), []).append(name)
        return groups

    @cached_property
    def _compared(self) -> set[tuple[int, SeriesKey]]:
        compared = set[tuple[int, SeriesKey]]()
        for ranks, names in self._groups.items():
            for rank in ranks:
                compared.update((rank, key) for key in self._keys(open_run(self._folders[rank]), names))
        return compared

    @cached_property
    def _parted(self) -> dict[tuple[int, SeriesKey], Parted]:
        parted: dict[tuple[int, SeriesKey], Parted] = {}
        for ranks, names in self._groups.items():
            found: defaultdict[SeriesKey, dict[int, Parted]] = defaultdict(dict)
            for rank in ranks[1:]:
                # Two runs at a time, each in the order of its files.
                for key, one in self._as_a_whole(ranks[0], [*self._differences(ranks[0], rank, names)]):
                    found[key][rank] = one
            for key, by_rank in found.items():
                parted |= {(rank, key): one for rank, one in _guilty(ranks, by_rank)}
        return parted

    def _as_a_whole(self, rank: int, found: Sequence[tuple[SeriesKey, Parted]]) -> Iterator[tuple[SeriesKey, Parted]]:
        """Yield partings; what parted at first in one statistic was never equal, and constants only with the rest."""
        at_first = {(key.vpp_stage, key.name) for key, one in found if not one.was_equal}
        for key, one in found:
            name = key.vpp_stage, key.name
            is_constant = _may_be_constant(dict(self._beginnings[rank][name][1]))
            is_doubtful = name in at_first or (is_constant and bool(at_first))
            yield key, replace(one, was_equal=not is_doubtful)

    def _differences(
        self, first: int, rank: int, names: Sequence[tuple[int, str]]
    ) -> Iterator[tuple[SeriesKey, Parted]]:
        reference, other = (open_run(self._folders[each]) for each in (first, rank))
        own = Statistics(other)
        for key in self._keys(reference, names):
            limit = self._limit(key)
            if limit is not None and key.statistic in own.names(key.watched):
                one = _first_apart(reference.read(key), other.read(key), first, limit)
                if one is not None:
                    yield key, one

    def _keys(self, run: Run, names: Sequence[tuple[int, str]]) -> Iterator[SeriesKey]:
        wanted = {*names}
        for key in run.keys:
            is_wanted = kind_of(key) in PARAMETERS and (key.vpp_stage, key.name) in wanted
            if is_wanted and key.statistic in CONTINUOUS and self._limit(key) is not None:
                yield key


def _beginnings(run: Statistics) -> dict[tuple[int, str], Beginning]:
    found: dict[tuple[int, str], Beginning] = {}
    for tensor in run.tensors:
        if kind_of(tensor) in PARAMETERS and (tensor.vpp_stage, tensor.name) not in found:
            series = run.read(tensor)
            if all(each.steps.size for each in series.values()):
                step = int(next(iter(series.values())).steps[0])
                values = tuple((name, float(each.values[0])) for name, each in series.items())
                found[tensor.vpp_stage, tensor.name] = step, values
    return found


def _may_be_constant(values: Mapping[str, float]) -> bool:
    """Return whether all elements may be one number, as far as the statistics show."""
    if "min" in values and "max" in values:
        return values["min"] == values["max"]
    if "norm" not in values:
        return True
    norm = values["norm"]
    square = norm * norm
    unsure = 2 * norm * quantum(decimals(np.array([norm]))) + _WHOLE * square
    return unsure > _UNKNOWN or not np.isfinite(square) or abs(square - round(square)) <= unsure


def _first_apart(first: Series, other: Series, rank: int, limit: float) -> Parted | None:
    """Return where the other rank's series first differs by more than the limit and what rounding a file explains."""
    steps = np.intersect1d(first.steps, other.steps, assume_unique=True)
    ours, theirs = (each.values[np.searchsorted(each.steps, steps)] for each in (first, other))
    size: Numbers = np.maximum(*(scale("norm", {"norm": values}) for values in (ours, theirs)))
    difference = relative_difference(theirs, ours, size)
    written = max(quantum(decimals(values)) for values in (ours, theirs))
    with np.errstate(divide="ignore", invalid="ignore"):
        allowed = np.maximum(limit, np.where(size > 0, written / size, 0.0))
    over = np.flatnonzero(difference > allowed)
    if not over.size:
        return None
    at = int(over[0])
    before = ours[:at]
    has_moved = at > 0 and abs(before[-1] - before[0]) > _VISIBLE * allowed[at] * size[at]
    was_equal = bool(has_moved and np.count_nonzero(np.diff(before)) >= _CHANGES)
    return Parted(int(steps[at]), float(theirs[at]), float(ours[at]), (rank,), float(difference[at]), was_equal)


def _guilty(ranks: Sequence[int], parted: Mapping[int, Parted]) -> Iterator[tuple[int, Parted]]:
    """Yield the ranks that left the others: the first one where all others left it alike, else those that left it."""
    first, *rest = ranks
    step = min(one.step for one in parted.values())
    at_once = {rank: one for rank, one in parted.items() if one.step == step}
    if len(rest) > 1 and len(at_once) == len(rest) and len({one.value for one in at_once.values()}) == 1:
        one = at_once[rest[0]]
        yield first, replace(one, value=one.other, other=one.value, others=tuple(rest))
        return
    stayed = tuple(rank for rank in ranks if rank not in parted)
    for rank, one in parted.items():
        yield rank, replace(one, others=stayed)
