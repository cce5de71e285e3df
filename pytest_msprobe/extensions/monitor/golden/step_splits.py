"""Comparability of two monitored runs: the same start, and steps of equal or different micro batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from msprobe_hooks.extensions.monitor.series.reader import Run, Series, SeriesKey
from msprobe_hooks.extensions.monitor.series.tables import Watched
from msprobe_hooks.messages import counted
from pytest_msprobe.errors import OptionError
from pytest_msprobe.extensions.monitor.golden.rank_pair import Pair
from pytest_msprobe.extensions.monitor.golden.series_tolerance import Source, Twins
from pytest_msprobe.extensions.monitor.series_names import (
    GRADIENTS,
    PARAMETERS,
    Kind,
    is_input,
    kind_of,
)

# An input is given, not computed: it differs by a rounding to bfloat16 at most, 2^-8. What is computed by a few.
_OTHER_INPUT, _OTHER_TENSORS = 2.0**-7, 2.0**-6

# A choice: so many tensors show what a run starts with, whatever its size.
_ASKED = 24

# MindSpore's is of the last micro batch alone, and no file says whose it is.
_UNREDUCED = "grad_unreduced"
_OF_MICRO_BATCH = frozenset({Kind.ACTIVATION, Kind.ACTIVATION_GRADIENT, Kind.COLLECTIVE})


def require_same_start(flag: str, run: Run, golden: Run) -> MicroBatches | None:
    """Return the micro batches of both where these differ. Raises OptionError where the runs cannot be compared."""
    batches = _other_micro_batches(run, golden)
    pair = Pair(view(run, batches), view(golden, batches))
    if batches is not None and not pair.tensors:
        raise OptionError(
            f"{flag} {run.folder}: cannot be compared with {golden.folder}: {batches.words}, "
            "and only activations are monitored, which depend on them",
            remedy="monitor gradients or parameters, or use the same micro batches in both runs",
        )
    if pair.first_step is None:
        raise OptionError(
            f"{flag} {run.folder}: no tensor has a step in common with the golden run {golden.folder}",
            remedy="monitor both runs at the same steps",
        )
    problem = _other_start(pair.tensors, pair.read) if pair.starts_together else None
    if problem is not None:
        also = "" if batches is None else f"; {batches.words}, so each loss must count by its share of the step"
        raise OptionError(
            f"{flag} {run.folder}: cannot be compared with {golden.folder}: {problem}{also}",
            remedy="use the same seed and data in both runs",
        )
    return batches


def _other_start(tensors: Sequence[Watched], read: Callable[[Watched], Twins]) -> str | None:
    """Return what of two runs is not the same at the first step that both have, None where they start alike.

    ``tensors`` are those of both, in the order computed. The inputs of the first module show whether the data are the
    same. Where they are not watched, most of the first tensors have to be apart: a fault is in one and those after it.
    """
    forward = [tensor for tensor in tensors if kind_of(tensor) is Kind.ACTIVATION][:_ASKED]
    weights = [tensor for tensor in tensors if kind_of(tensor) is Kind.PARAMETER][:_ASKED]
    backward = [tensor for tensor in tensors if kind_of(tensor) in GRADIENTS][:_ASKED]
    if weights and (difference := _most(weights, read)):
        return f"the weights differ: {difference}"
    if forward and is_input(forward[0]):
        apart = _apart(read(forward[0]))
        return f"the data differ: {_described(forward[0], apart)}" if apart > _OTHER_INPUT else None
    if difference := _most(forward or backward, read):
        return f"data or weights differ: {difference}"
    return None


def are_alike(tensors: Sequence[Watched], read: Callable[[Watched], Twins]) -> bool:
    """Return whether the first tensors of two runs are the same at the first step that both have."""
    return all(_apart(read(tensor)) <= _OTHER_TENSORS for tensor in tensors[:_ASKED])


def _most(tensors: Sequence[Watched], read: Callable[[Watched], Twins]) -> str | None:
    """Name the first of the tensors that are apart, where most are."""
    apart = {tensor: _apart(read(tensor)) for tensor in tensors}
    far = [tensor for tensor in tensors if apart[tensor] > _OTHER_TENSORS]
    return _described(far[0], apart[far[0]]) if 2 * len(far) > len(tensors) else None


def _apart(both: Twins) -> float:
    """Return the largest relative difference of a tensor's statistics at the first step."""
    return max((float(both.difference(name)[0]) for name in both.continuous), default=0.0) if len(both.steps) else 0.0


def _described(tensor: Watched, apart: float) -> str:
    return f"{tensor.task} {tensor.name} differs by {100 * apart:.2g} % at the first step"


@dataclass(frozen=True, slots=True)
class View:
    """Comparable series of a run."""

    run: Run
    keys: Iterable[SeriesKey]

    def read(self, key: SeriesKey) -> Series:
        """Return a series."""
        return self.run.read(key)


@dataclass(frozen=True, slots=True)
class MicroBatches:
    """Number of micro batches in the steps of a run and of its golden run, where those hold other data."""

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
        """Return what differs, in words."""
        return (
            f"steps have {counted(self.target, 'micro batch', 'micro batches')}, those of the golden run {self.golden}"
        )

    def note(self, keys: Iterable[SeriesKey]) -> str:
        """Return what is not compared, as a sentence."""
        tasks = dict.fromkeys(key.task for key in keys if self.depend_on(key))
        return f"{self.words}: {', '.join(tasks)} depend on them and are not compared"


def _other_micro_batches(target: Run, golden: Run) -> MicroBatches | None:
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
