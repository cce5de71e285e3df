"""Pairs of monitored runs in memory that drift apart as honest runs do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.extensions.monitor.series.reader import Series, SeriesKey

STATISTICS = ("norm", "min", "max", "mean")


class MemoryRun:
    """A rank's run in memory: values of shape (steps,) by series, in the order computed."""

    def __init__(self, values: Mapping[SeriesKey, NDArray[np.float64]], first_step: int = 0) -> None:
        self.values = dict(values)
        self._first = first_step

    @property
    def keys(self) -> Sequence[SeriesKey]:
        """The series in the order computed."""
        return [*self.values]

    def read(self, key: SeriesKey) -> Series:
        """Return one of them."""
        values = self.values[key]
        return Series(key, np.arange(self._first, self._first + len(values)), values)

    def changed(self, at: slice, factor: float, *keys: SeriesKey) -> MemoryRun:
        """Return the run with values of some series multiplied."""
        values = {key: each.copy() for key, each in self.values.items()}
        for key in keys:
            values[key][at] *= factor
        return MemoryRun(values, self._first)

    def without(self, *tasks: str) -> MemoryRun:
        """Return the run without tasks."""
        return MemoryRun({key: each for key, each in self.values.items() if key.task not in tasks}, self._first)

    def later(self, first_step: int) -> MemoryRun:
        """Return the run from a step on."""
        return MemoryRun({key: each[first_step - self._first :] for key, each in self.values.items()}, first_step)


def trained(layers: int, steps: int, *, rounding: float = 0.0, seed: int = 0, kinked: bool = False) -> MemoryRun:
    """Return statistics of float32 tensors of some layers, off by ``rounding`` at random; equal seeds, equal roundings.

    ``kinked``: forward tensors are cut off at zero, as by a ReLU.
    """
    truth, noise = np.random.default_rng(7), np.random.default_rng(seed)
    forward = [("actv", f"layers.{i}.{end}") for i in range(layers) for end in ("input", "output")]
    backward = [("actv_grad", f"layers.{i}.{end}") for i in reversed(range(layers)) for end in ("output", "input")]
    parameters = [f"layers.{i}.weight" for i in reversed(range(layers))]
    tensors = [("param_origin", name) for name in reversed(parameters)] + forward + backward
    tensors += [(task, name) for task in ("grad_reduced", "param_updated") for name in parameters]
    values = {}
    for task, name in tensors:
        size = np.exp(truth.normal(scale=1.0)) * (1 + 0.1 * truth.random(steps))
        exact = {"norm": 9 * size, "min": -size, "max": 1.1 * size, "mean": 0.01 * size}
        if kinked and task == "actv":
            exact["min"] = 0 * size
        for statistic in STATISTICS:
            off = 1 + rounding * noise.normal(size=steps)
            value = exact[statistic] * off
            single = statistic in ("min", "max")
            values[SeriesKey(task, 0, name, None, statistic)] = (
                value.astype(np.float32).astype(float) if single else value
            )
    return MemoryRun(values)
