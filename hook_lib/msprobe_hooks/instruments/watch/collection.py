"""What a step brings: statistics in the order in which they were computed, until the step ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from torch import Tensor

from msprobe_hooks.instruments.series.heat_maps import BINS, RANGE
from msprobe_hooks.instruments.series.writing import Row
from msprobe_hooks.instruments.watch.errors import Errors
from msprobe_hooks.instruments.watch.statistics import Meter, Values, fetch
from msprobe_hooks.torch.calls import is_traced
from msprobe_hooks.torch.quiet import Quiet

#: Task, pipeline chunk, name and micro step: what has one row in a step.
Place: TypeAlias = "tuple[str, int, str, int | None]"


class Collection:
    """The statistics of the step that runs, while ``is_on``; what is measured again replaces what was before."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.is_on = False
        self.errors = Errors()
        self._values: dict[Place, Values] = {}
        self._repeated: dict[tuple[str, str], list[Values]] = {}
        self._distributions: dict[Place, Tensor] = {}

    def measure(
        self, task: str, chunk: int, names: Sequence[str], tensors: Sequence[Tensor], micro_step: int | None = None
    ) -> None:
        """Measure tensors where they are. The caller is quiet."""
        for name, values in zip(names, self.meter.measure(tensors), strict=True):
            place = (task, chunk, name, micro_step)
            self._values.pop(place, None)
            self._values[place] = values

    def distribute(self, task: str, chunk: int, name: str, tensor: Tensor) -> None:
        """Count how the elements of a tensor that was measured are distributed, for the pictures of events."""
        self._distributions[task, chunk, name, None] = tensor.float().histc(BINS, *RANGE)

    def measure_again(self, task: str, names: Sequence[str], tensors: Sequence[Tensor]) -> None:
        """Measure tensors that come several times in a step, whose statistics are combined at its end."""
        for name, values in zip(names, self.meter.measure(tensors), strict=True):
            self._repeated.setdefault((task, name), []).append(values)

    @property
    def has_rows(self) -> bool:
        """Tell whether the step has brought anything."""
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
        numbers = fetch(list(self._values.values()))
        counts = {place: tuple(counted.tolist()) for place, counted in self._distributions.items()}
        rows = [
            Row(task, chunk, name, step, micro_step, found, counts.get((task, chunk, name, micro_step), ()))
            for (task, chunk, name, micro_step), found in zip(self._values, numbers, strict=True)
        ]
        for (task, name), repeated in self._repeated.items():
            columns = zip(self.meter.statistics, zip(*fetch(repeated), strict=True), strict=True)
            rows.append(Row(task, 0, name, step, None, tuple(combined(*column) for column in columns)))
        return rows

    def harmless(self, where: str, hook: Callable[..., None]) -> Callable[..., None]:
        """Return a hook that does nothing in steps that are not collected, is not seen, and never raises.

        What goes wrong is in ``errors``.
        """
        kept = self.errors.kept_from(where)

        def run(*args: Any) -> None:
            if self.is_on and not is_traced():
                with kept, Quiet():
                    hook(*args)

        return run


def combined(statistic: str, values: Sequence[float]) -> float:
    """Return what several tensors have together, as msprobe does: extrema, sums of norms and of counts, else means."""
    if any(map(math.isnan, values)):
        return math.nan
    if statistic in ("min", "max"):
        return (min if statistic == "min" else max)(values)
    return sum(values) if statistic in ("norm", "nans") else sum(values) / len(values)
