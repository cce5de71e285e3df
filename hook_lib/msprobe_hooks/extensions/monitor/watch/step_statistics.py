"""What a step brings: statistics in the order in which they were computed, until the step ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

from msprobe_hooks.extensions.monitor.series.writer import Row
from msprobe_hooks.extensions.monitor.watch.error_log import Errors

#: Task, pipeline chunk, name and micro step: what has one row in a step.
Place: TypeAlias = "tuple[str, int, str, int | None]"
#: Numbers, or what the meter that gave them makes them of when they are fetched.
Values: TypeAlias = Any


class Meter(Protocol):
    """What computes statistics of a framework's tensors."""

    @property
    def statistics(self) -> tuple[str, ...]:
        """Their names."""

    def measure(self, tensors: Sequence[Any]) -> Sequence[Values]:
        """Return the statistics of each tensor, which may still be on a device. The caller is quiet."""

    def fetch(self, rows: Sequence[Values]) -> Sequence[tuple[float, ...]]:
        """Bring statistics to the host."""

    def distribution(self, tensor: Any) -> Any:
        """Return how many elements are in each bin of a heat map, as a tensor or an array."""


class Collection:
    """The statistics of the step that runs, while ``is_on``; what is measured again replaces what was before.

    ``quiet`` is the context that hooks run in, which leaves no trace in the training; while ``is_hidden()``, as from a
    compiler, none of them runs.
    """

    def __init__(
        self,
        meter: Meter,
        quiet: Callable[[], AbstractContextManager[object]],
        is_hidden: Callable[[], bool] = lambda: False,
    ) -> None:
        self.meter = meter
        self._quiet = quiet
        self._is_hidden = is_hidden
        self.is_on = False
        self.errors = Errors()
        self._values: dict[Place, Values] = {}
        self._repeated: dict[tuple[str, str], list[Values]] = {}
        self._distributions: dict[Place, Any] = {}

    def measure(
        self, task: str, chunk: int, names: Sequence[str], tensors: Sequence[Any], micro_step: int | None = None
    ) -> None:
        """Measure tensors where they are. The caller is quiet."""
        for name, values in zip(names, self.meter.measure(tensors), strict=True):
            place = (task, chunk, name, micro_step)
            self._values.pop(place, None)
            self._values[place] = values

    def distribute(self, task: str, chunk: int, name: str, tensor: Any) -> None:
        """Count how the elements of a tensor that was measured are distributed, for the pictures of events."""
        self._distributions[task, chunk, name, None] = self.meter.distribution(tensor)

    def measure_again(self, task: str, names: Sequence[str], tensors: Sequence[Any]) -> None:
        """Measure tensors that come several times in a step, whose statistics are combined at its end."""
        for name, values in zip(names, self.meter.measure(tensors), strict=True):
            self._repeated.setdefault((task, name), []).append(values)

    @property
    def has_rows(self) -> bool:
        """Return whether the step has brought anything."""
        return bool(self._values or self._repeated)

    def take(self, step: int) -> list[Row]:
        """Return the rows of the step and forget them."""
        rows = self.look(step)
        self._values = {}
        self._repeated = {}
        self._distributions = {}
        return rows

    def look(self, step: int) -> list[Row]:
        """Return the rows that the step has brought so far."""
        numbers = self.meter.fetch(list(self._values.values()))
        counts = {place: tuple(counted.tolist()) for place, counted in self._distributions.items()}
        rows = [
            Row(task, chunk, name, step, micro_step, found, counts.get((task, chunk, name, micro_step), ()))
            for (task, chunk, name, micro_step), found in zip(self._values, numbers, strict=True)
        ]
        for (task, name), repeated in self._repeated.items():
            columns = zip(self.meter.statistics, zip(*self.meter.fetch(repeated), strict=True), strict=True)
            rows.append(Row(task, 0, name, step, None, tuple(combined(*column) for column in columns)))
        return rows

    def harmless(self, where: str, hook: Callable[..., None]) -> Callable[..., None]:
        """Return a hook that does nothing in steps that are not collected, is not seen, and never raises.

        What goes wrong is in ``errors``.
        """
        kept, quiet, is_hidden = self.errors.kept_from(where), self._quiet, self._is_hidden

        def run(*args: Any) -> None:
            if self.is_on and not is_hidden():
                with kept, quiet():
                    hook(*args)

        return run


def combined(statistic: str, values: Sequence[float]) -> float:
    """Return what several tensors have together, as msprobe does: extrema, sums of norms and of counts, else means."""
    if any(map(math.isnan, values)):
        return math.nan
    if statistic in ("min", "max"):
        return (min if statistic == "min" else max)(values)
    return sum(values) if statistic in ("norm", "nans") else sum(values) / len(values)
