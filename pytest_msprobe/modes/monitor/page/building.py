"""Watched runs as a page: every series read once, and kept at what a screen can show of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.instruments.series.reading import Run, Series, SeriesKey
from pytest_msprobe.modes.monitor.page.axis import Binning, Envelope, make_axis
from pytest_msprobe.modes.monitor.page.gap import gap_bytes, relative_gap
from pytest_msprobe.modes.monitor.page.model import Curves, Exact, Finding, RankRuns, WatchedPage

#: What all curves of a page may take in its file, before base64; a page of this size opens within two seconds.
_ROOM = 16_000_000
_MOST_BINS = 400
_LEAST_BINS = 40
#: So many series with findings keep every step, whatever the options name.
_EXACT_FINDINGS = 8


def build_page(
    ranks: Sequence[RankRuns],
    findings: Sequence[Finding] = (),
    *,
    title: str,
    about: str,
    verdict: str,
    exact: Sequence[str] = (),
) -> WatchedPage:
    """Return the page of a run, or of a pair of runs.

    ``exact`` are shell patterns of names, such as ``*.attn.*``, whose series keep every step. Raises MonitorError
    where a run's files cannot be read, ValueError where no rank watched anything.
    """
    keys = [_keys(rank) for rank in ranks]
    steps = _watched_steps(ranks)
    binning = Binning(make_axis(steps, _bins(sum(map(len, keys)), is_pair=any(rank.golden for rank in ranks))))
    is_binned = len(binning.axis.starts) < len(steps)
    found = dict.fromkeys((finding.rank, finding.key) for finding in findings)
    whole = set(list(found)[:_EXACT_FINDINGS])

    def is_exact(place: int, key: SeriesKey) -> bool:
        return is_binned and ((place, key) in whole or any(fnmatchcase(key.name, pattern) for pattern in exact))

    curves = [
        _curves(binning, place, key, runs, is_exact=is_exact(place, key))
        for place, runs in enumerate(ranks)
        for key in keys[place]
    ]
    curves += [_similarity(binning, place, each) for place, runs in enumerate(ranks) for each in runs.similarities]
    return WatchedPage(
        title=title,
        about=about,
        verdict=verdict,
        axis=binning.axis,
        is_binned=is_binned,
        ranks=[rank.label for rank in ranks],
        is_pair=any(rank.golden for rank in ranks),
        curves=curves,
        findings=findings,
        notes=list(_notes(ranks)),
    )


def _runs(ranks: Iterable[RankRuns]) -> Iterator[Run]:
    for rank in ranks:
        yield from (run for run in (rank.target, rank.golden) if run is not None)


def _keys(rank: RankRuns) -> list[SeriesKey]:
    """Return what either run watched, in the target's order."""
    return list(dict.fromkeys(key for run in _runs([rank]) for key in run.keys))


def _watched_steps(ranks: Sequence[RankRuns]) -> NDArray[np.int64]:
    """Return the steps of one series of each task: all of a task's are watched at the same steps."""
    steps: list[NDArray[np.int64]] = [each.steps for rank in ranks for each in rank.similarities[:1]]
    for run in _runs(ranks):
        firsts = {key.task: key for key in reversed(run.keys)}
        steps += [run.read(key).steps for key in reversed(firsts.values())]
    if not sum(map(len, steps)):
        raise ValueError("no step was watched")
    return np.unique(np.concatenate(steps))


def _bins(series: int, *, is_pair: bool) -> int:
    room = _ROOM // max(1, series)
    # Least and greatest, 4 bytes each, of one or two runs, and a byte for the gap of two.
    return max(_LEAST_BINS, min(_MOST_BINS, room // (17 if is_pair else 8)))


def _curves(binning: Binning, place: int, key: SeriesKey, runs: RankRuns, *, is_exact: bool) -> Curves:
    target, golden = _read(runs.target, key), _read(runs.golden, key)
    gap = _gap(binning, target, golden) if target is not None and golden is not None else None
    exact = Exact(target, golden) if is_exact else None
    return Curves(place, key, _envelope(binning, target), _envelope(binning, golden), gap, exact)


def _similarity(binning: Binning, place: int, series: Series) -> Curves:
    """Return a sign similarity; its gap is the mean difference of signs, 0 to 2 as other gaps are."""
    gap = gap_bytes(binning, series.steps, 2 * (1 - series.values))
    return Curves(place, series.key, _envelope(binning, series), None, gap, None)


def _read(run: Run | None, key: SeriesKey) -> Series | None:
    try:
        return None if run is None else run.read(key)
    except KeyError:
        return None


def _envelope(binning: Binning, series: Series | None) -> Envelope | None:
    return None if series is None else binning.envelope(series.steps, series.values)


def _gap(binning: Binning, target: Series, golden: Series) -> NDArray[np.uint8]:
    if np.array_equal(target.steps, golden.steps):
        return gap_bytes(binning, target.steps, relative_gap(target.values, golden.values))
    steps, ours, theirs = np.intersect1d(target.steps, golden.steps, assume_unique=True, return_indices=True)
    return gap_bytes(binning, steps, relative_gap(target.values[ours], golden.values[theirs]))


def _notes(ranks: Sequence[RankRuns]) -> Iterator[str]:
    for rank in ranks:
        for run, side in ((rank.target, "target"), (rank.golden, "golden")):
            place = " ".join(part for part in (rank.label, side if rank.golden else "") if part)
            yield from (f"{place}: {note}" if place else note for note in (run.notes if run is not None else ()))
