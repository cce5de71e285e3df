"""What the page of a check is given: the runs, and of each record where it was judged and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_msprobe.reports.history.item_key import NO_KEY, ItemKey
from pytest_msprobe.results.result import DirectionResult, Start


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One run: when it began, what it ran on, how it judged, and sentences on it."""

    name: str
    began: str
    starts: Sequence[Start]
    settings: Mapping[str, str]
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class CheckedRecord:
    """One record of a run; ``run`` is the place of its run among all of them.

    ``dump`` names its dump among the run's and is empty where there is one. ``rerun`` are the words of the
    command that runs a record again, with ``<dump>::<record>`` in place of this one's, which is ``chosen``. ``key`` is
    what it has in common with itself in another run.
    """

    run: int
    result: DirectionResult
    dump: str = ""
    card: str = ""
    rerun: tuple[str, ...] = field(default=(), repr=False)
    chosen: str = ""
    key: ItemKey = NO_KEY
