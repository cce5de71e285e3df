"""Two runs whose steps have other micro batches: what of them can be compared, and what cannot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msprobe_hooks.extensions.monitor.series.reader import Run, Series, SeriesKey
from msprobe_hooks.messages import counted
from pytest_msprobe.extensions.monitor.golden.paired_series import Source
from pytest_msprobe.extensions.monitor.golden.preconditions import are_alike
from pytest_msprobe.extensions.monitor.golden.rank_pair import Pair
from pytest_msprobe.extensions.monitor.series_kinds import PARAMETERS, Kind, kind_of

# MindSpore's is of the last micro batch alone, and no file says whose it is.
_UNREDUCED = "grad_unreduced"
_OF_MICRO_BATCH = frozenset({Kind.ACTIVATION, Kind.ACTIVATION_GRADIENT, Kind.COLLECTIVE})


@dataclass(frozen=True, slots=True)
class View:
    """Those series of a run that can be compared."""

    run: Run
    keys: Iterable[SeriesKey]

    def read(self, key: SeriesKey) -> Series:
        """Return a series."""
        return self.run.read(key)


@dataclass(frozen=True, slots=True)
class MicroBatches:
    """How many micro batches the steps of a run and of its golden run have, where those hold other data."""

    target: int
    golden: int

    def depend_on(self, key: SeriesKey) -> bool:
        """Return whether a series is other for other micro batches."""
        kind = kind_of(key)
        if kind in PARAMETERS:
            return False  # a recorded one has the number of its module's call
        return key.micro_step is not None or kind in _OF_MICRO_BATCH or key.task == _UNREDUCED

    @property
    def words(self) -> str:
        """What differs, in words."""
        return (
            f"steps have {counted(self.target, 'micro batch', 'micro batches')}, those of the golden run {self.golden}"
        )

    def note(self, keys: Iterable[SeriesKey]) -> str:
        """Return what is not compared, as a sentence."""
        tasks = dict.fromkeys(key.task for key in keys if self.depend_on(key))
        return f"{self.words}: {', '.join(tasks)} depend on them and are not compared"


def other_micro_batches(target: Run, golden: Run) -> MicroBatches | None:
    """Return the micro batches of two runs, None where both have as many, or those of both hold the same data."""
    own, theirs = _counts(target), _counts(golden)
    differing = [task for task in own if task in theirs and own[task] != theirs[task]]
    if not differing:
        return None
    pair = Pair(target, golden)
    forward = [tensor for tensor in pair.tensors if kind_of(tensor) is Kind.ACTIVATION]
    if forward and pair.starts_together and are_alike(forward, pair.read):
        return None
    return MicroBatches(own[differing[0]], theirs[differing[0]])


def view(run: Run, batches: MicroBatches | None) -> Source:
    """Return what of a run can be compared."""
    return run if batches is None else View(run, [key for key in run.keys if not batches.depend_on(key)])


def _counts(run: Run) -> dict[str, int]:
    counts: dict[str, int] = {}
    for key in run.keys:
        if key.micro_step is not None:
            counts[key.task] = max(counts.get(key.task, 0), key.micro_step + 1)
    return counts
