"""What a page of monitored runs shows, whatever found it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.extensions.monitor.series.reader import Run, Series, SeriesKey
from pytest_msprobe.extensions.monitor.golden.rank_pair import Compared
from pytest_msprobe.extensions.monitor.page.axis import Axis, Envelope


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
    """What was found in a series; ``rank`` is the place of its rank in the page, ``step`` None where it has none."""

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
    page leads with.
    """

    title: str
    about: str
    verdict: str
    axis: Axis
    is_binned: bool
    times: NDArray[np.float64] | None
    ranks: Sequence[str]
    is_pair: bool
    curves: Sequence[Curves]
    findings: Sequence[Finding]
    notes: Sequence[str]
