"""The page of monitored runs: each series read once, binned to the resolution of a screen, and the gap of two."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.series.blocks import read_step_times
from msprobe_hooks.extensions.monitor.series.reader import Run, Series, SeriesKey
from pytest_msprobe.extensions.monitor.golden.rank_pair import Compared
from pytest_msprobe.extensions.monitor.golden.series_tolerance import (
    CONTINUOUS,
    Statistics,
    Twins,
    relative_difference,
    twins,
)
from pytest_msprobe.extensions.monitor.series_names import item_name
from pytest_msprobe.reports.pages import NextStep

#: What a byte says: no step that both runs watched; equal; from LEAST, on a logarithmic scale, to GREATEST; NaN or
#: inf where the other run has none.
MISSING, EQUAL, SCALE, NOT_FINITE = 0, 1, (2, 254), 255
LEAST, GREATEST = 1e-9, 2.0

#: What all curves of a page may take in its file, before base64; a page of this size opens within two seconds.
_ROOM = 16_000_000
_MOST_BINS = 400
_LEAST_BINS = 40
#: So many series with findings keep every step, whatever the options name, and show what was allowed.
_WHOLE_FINDINGS = 8

# Series whose statistic jumps have no tolerance: so many of the widest gaps are looked at.
_MOST_TRIED = 20

_GREATEST = float(np.finfo(np.float32).max)


def _not_compared(key: SeriesKey) -> None:
    """Return None: the run has no golden one."""


@dataclass(frozen=True, slots=True)
class RankRuns:
    """One rank of a monitored run, with its golden run where there is one; ``label`` is empty for the only rank.

    ``keys`` are the series of either run, in the order computed. ``compared`` returns what is allowed of one of them,
    ``similarities`` are series that both runs give together, such as the sign similarity of a gradient.
    """

    label: str
    keys: Sequence[SeriesKey]
    target: Run
    golden: Run | None = None
    compared: Callable[[SeriesKey], Compared | None] = _not_compared
    similarities: Sequence[Series] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """Finding in a series; ``rank`` is the place of its rank in the page, ``step`` None where it has none."""

    rank: int
    key: SeriesKey
    step: int | None
    outcome: Literal["warn", "fail"]
    rule: str
    message: str


@dataclass(frozen=True, slots=True)
class Exact:
    """Both runs of a series with every step; None where a run does not have it."""

    target: Series | None
    golden: Series | None


@dataclass(frozen=True, slots=True)
class Curves:
    """A series of one rank, binned: each run's least and greatest values, and how far apart they are (`gap_bytes`).

    ``exact`` has every step where it was asked for, ``compared`` what was allowed where something was found.
    """

    rank: int
    key: SeriesKey
    target: Envelope | None
    golden: Envelope | None
    gap: NDArray[np.uint8] | None
    exact: Exact | None = None
    compared: Compared | None = None


@dataclass(frozen=True, slots=True)
class WatchedPage:
    """A page: series in the order computed, findings in the order to read them, the first of them where it all began.

    ``is_binned``: some bins hold several steps. ``times`` are the ends of the first step of each bin and of the last
    step of all, in seconds since 1970, None where no run holds them for all steps. ``verdict`` is the sentence that the
    page leads with. ``files`` are those by which ranks are named in ``commands``, which are on one series.
    """

    title: str
    about: str
    verdict: str
    axis: _Axis
    is_binned: bool
    times: NDArray[np.float64] | None
    ranks: Sequence[str]
    is_pair: bool
    curves: Sequence[Curves]
    findings: Sequence[Finding]
    notes: Sequence[str]
    widest: WidestGap | None = None
    files: Sequence[str] = ()
    commands: Sequence[NextStep] = ()


@dataclass(frozen=True, slots=True)
class WidestGap:
    """Largest gap of two runs: the place of its series among the curves, its step, and both in words."""

    curves: int
    step: int
    words: str


def build_page(
    ranks: Sequence[RankRuns],
    findings: Sequence[Finding] = (),
    *,
    title: str,
    about: str,
    verdict: str,
    exact: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> WatchedPage:
    """Return the page of a run, or of a pair of runs.

    ``exact`` are shell patterns of names, such as ``*.attn.*``, whose series keep every step. ``notes`` follow those of
    the runs, and of the tensors that are left out as their series cannot be read. Raises MonitorError where none can
    be read, ValueError where no rank watched anything.
    """
    steps, is_pair = _watched_steps(ranks), any(rank.golden for rank in ranks)
    binning = Binning(make_axis(steps, _bins(sum(len(rank.keys) for rank in ranks), is_pair=is_pair)))
    is_binned = len(binning.axis.starts) < len(steps)
    shown_series = list(dict.fromkeys((finding.rank, finding.key) for finding in findings))[:_WHOLE_FINDINGS]
    curves: list[Curves] = []
    unreadable: list[str] = []
    for place, rank in enumerate(ranks):
        exact_keys = (
            {key for key in rank.keys if _is_named(key, exact) or (place, key) in shown_series} if is_binned else set()
        )
        curves += _curves(binning, place, rank, exact_keys, unreadable)
        curves += (_similarity(binning, place, similarity) for similarity in rank.similarities)
    for place, curve in enumerate(curves):
        if (curve.rank, curve.key) in shown_series:
            curves[place] = replace(curve, compared=ranks[curve.rank].compared(curve.key))
    return WatchedPage(
        title=title,
        about=about,
        verdict=verdict,
        axis=binning.axis,
        is_binned=is_binned,
        times=_times(binning.axis, (run.folder for run in _runs(ranks)), unreadable),
        ranks=[rank.label for rank in ranks],
        is_pair=is_pair,
        curves=curves,
        findings=findings,
        notes=[*_notes(ranks), *unreadable, *notes],
    )


def widest_gap(page: WatchedPage, ranks: Sequence[RankRuns]) -> WidestGap | None:
    """Return where two runs are farthest apart by a statistic that has a tolerance; None where none has one."""
    gaps = {
        place: int(curves.gap.max())
        for place, curves in enumerate(page.curves)
        if curves.gap is not None and curves.gap.size and curves.key.statistic in CONTINUOUS
    }
    for place in sorted(gaps, key=gaps.__getitem__, reverse=True)[:_MOST_TRIED]:
        curves = page.curves[place]
        compared = ranks[curves.rank].compared(curves.key)
        if compared is not None and compared.steps.size:
            at = int(np.argmax(compared.difference))
            label, step = page.ranks[curves.rank], int(compared.steps[at])
            where = ", ".join(part for part in (f"step {step}", label, item_name(curves.key)) if part)
            apart, allowed = float(compared.difference[at]), float(compared.allowed[at])
            return WidestGap(place, step, f"largest gap {apart:.2g} of its size, {allowed:.2g} allowed: {where}")
    return None


def gap(both: Twins, statistic: str) -> NDArray[np.float64]:
    """Return how far apart a statistic is at each step: as it is judged, others relative to themselves, 0 to 2.

    It is inf where only one of the values is finite.
    """
    if statistic in CONTINUOUS:
        return both.difference(statistic)
    target, golden = both.target[statistic], both.golden[statistic]
    return relative_difference(target, golden, np.maximum(np.abs(target), np.abs(golden)))


def gap_bytes(binning: Binning, steps: NDArray[np.int64], gaps: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Return the greatest gap of each bin as a byte."""
    most = binning.greatest(steps, gaps)
    first, last = SCALE
    with np.errstate(divide="ignore"):
        decades = np.log10(np.clip(most, LEAST, GREATEST) / LEAST) / np.log10(GREATEST / LEAST)
    levels: NDArray[np.float64] = np.rint(first + decades * (last - first))
    levels[most == 0] = EQUAL
    levels[most == np.inf] = NOT_FINITE
    levels[most == -np.inf] = MISSING
    return levels.astype(np.uint8)


def _runs(ranks: Iterable[RankRuns]) -> Iterator[Run]:
    for rank in ranks:
        yield from (run for run in (rank.target, rank.golden) if run is not None)


def _is_named(key: SeriesKey, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(key.name, pattern) for pattern in patterns)


def _watched_steps(ranks: Sequence[RankRuns]) -> NDArray[np.int64]:
    """Return the steps of one series of each task: all of a task's are watched at the same steps."""
    steps: list[NDArray[np.int64]] = [similarity.steps for rank in ranks for similarity in rank.similarities[:1]]
    problem: MonitorError | None = None
    for run in _runs(ranks):
        tasks: set[str] = set()
        for key in run.keys:
            if key.task not in tasks:
                try:
                    steps.append(run.read(key).steps)
                except MonitorError as error:
                    problem = problem or error
                else:
                    tasks.add(key.task)
    if not sum(map(len, steps)):
        raise problem or ValueError("the run has no steps")
    return np.unique(np.concatenate(steps))


def _times(axis: _Axis, folders: Iterable[Path], unreadable: list[str]) -> NDArray[np.float64] | None:
    """Return when the first step of each bin and the last of all ended, by the first folder that holds all of them.

    What cannot be read becomes a note.
    """
    steps = np.append(axis.starts, axis.last)
    for folder in folders:
        try:
            ended = read_step_times(folder)
        except MonitorError as error:
            unreadable.append(f"times of steps left out: {error}")
            continue
        if ended is not None and ended.steps[0] <= steps[0] and steps[-1] <= ended.steps[-1]:
            return ended.at(steps)
    return None


def _bins(series: int, *, is_pair: bool) -> int:
    room = _ROOM // max(1, series)
    # Least and greatest, 4 bytes each, of one or two runs, and a byte for the gap of two.
    return max(_LEAST_BINS, min(_MOST_BINS, room // (17 if is_pair else 8)))


def _curves(
    binning: Binning, place: int, runs: RankRuns, exact: Collection[SeriesKey], unreadable: list[str]
) -> Iterator[Curves]:
    """Yield a rank's series, tensor by tensor; those of ``exact`` with every step, a note for those left out."""
    ours, theirs = Statistics(runs.target), Statistics(runs.golden) if runs.golden is not None else None
    for tensor, keys in groupby(runs.keys, attrgetter("watched")):
        try:
            target, golden = ours.read(tensor), theirs.read(tensor) if theirs is not None else {}
        except MonitorError as error:
            name = f"{runs.label}: {tensor.name}" if runs.label else tensor.name
            unreadable.append(f"{name} is left out: {error}")
            continue
        both = twins(target, golden)
        for key in keys:
            name = key.statistic
            sides = target.get(name), golden.get(name)
            curves = [_envelope(binning, side) for side in sides]
            gaps = gap_bytes(binning, both.steps, gap(both, name)) if name in both.target else None
            whole = Exact(*sides) if key in exact else None
            yield Curves(place, key, curves[0], curves[1], gaps, whole)


def _similarity(binning: Binning, place: int, series: Series) -> Curves:
    """Return a sign similarity; its gap is the mean difference of signs, 0 to 2 as other gaps are."""
    gaps = gap_bytes(binning, series.steps, 2 * (1 - series.values))
    return Curves(place, series.key, _envelope(binning, series), None, gaps)


def _envelope(binning: Binning, series: Series | None) -> Envelope | None:
    return None if series is None else binning.envelope(series.steps, series.values)


def _notes(ranks: Sequence[RankRuns]) -> Iterator[str]:
    for rank in ranks:
        for run, side in ((rank.target, "target"), (rank.golden, "golden")):
            place = " ".join(part for part in (rank.label, side if rank.golden else "") if part)
            yield from (f"{place}: {note}" if place else note for note in (run.notes if run is not None else ()))


@dataclass(frozen=True, slots=True)
class _Axis:
    """Bins of consecutive steps: ``starts`` holds the first step of each, ascending; ``last`` is the last step of all.

    Where steps are watched every so often or in bursts, each bin holds as many watched steps as the others.
    """

    starts: NDArray[np.int64]
    last: int

    def bins_of(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the bin of each step; what lies outside belongs to the first or the last one."""
        places = np.searchsorted(self.starts, steps, side="right") - 1
        return np.maximum(places, 0)


@dataclass(frozen=True, slots=True)
class Envelope:
    """The least and the greatest value of each bin, float32.

    A bin without values has ``low`` inf above ``high`` -inf; one that holds a NaN is NaN. What float32 cannot hold
    is its greatest number.
    """

    low: NDArray[np.float32]
    high: NDArray[np.float32]


def make_axis(steps: NDArray[np.int64], most: int) -> _Axis:
    """Return at most ``most`` bins, each of as many of the watched steps (ascending, unique, at least one)."""
    bins = min(most, len(steps))
    return _Axis(steps[np.arange(bins) * len(steps) // bins], int(steps[-1]))


class Binning:
    """Bins series on an axis. Steps are looked up once for series that follow each other and share them, as most do."""

    def __init__(self, axis: _Axis) -> None:
        self.axis = axis
        self._steps: NDArray[np.int64] = np.empty(0, np.int64)
        self._bins = self._firsts = np.empty(0, np.intp)

    def envelope(self, steps: NDArray[np.int64], values: NDArray[np.float64]) -> Envelope:
        """Return what a series (steps ascending) spans in each bin."""
        return Envelope(
            _single(self._reduce(np.minimum, steps, values, np.inf)),
            _single(self._reduce(np.maximum, steps, values, -np.inf)),
        )

    def greatest(self, steps: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the greatest value of each bin, -inf for a bin without values."""
        return self._reduce(np.maximum, steps, values, -np.inf)

    def _reduce(
        self, extreme: np.ufunc, steps: NDArray[np.int64], values: NDArray[np.float64], empty: float
    ) -> NDArray[np.float64]:
        if not np.array_equal(steps, self._steps):
            self._steps = steps
            self._bins, self._firsts = np.unique(self.axis.bins_of(steps), return_index=True)
        reduced = np.full(len(self.axis.starts), empty)
        if len(steps):
            reduced[self._bins] = extreme.reduceat(values, self._firsts)
        return reduced


def _single(values: NDArray[np.float64]) -> NDArray[np.float32]:
    finite = np.isfinite(values)
    return np.where(finite, np.clip(values, -_GREATEST, _GREATEST), values).astype(np.float32)
