"""The order in which a training step computes what is watched."""

from __future__ import annotations

from collections.abc import Sequence

from msprobe_hooks.instruments.series.reader import SeriesKey

#: Where a series stands within a step: earlier ones are computed earlier.
Place = tuple[int, int, int]

_BEFORE_THE_STEP = ("param_origin", "param")


def places(keys: Sequence[SeriesKey]) -> dict[SeriesKey, Place]:
    """Return the place of each series; ``keys`` are in the order computed but for micro steps, which repeat it."""
    return {key: (_phase(key), key.micro_step or 0, index) for index, key in enumerate(keys)}


def _phase(key: SeriesKey) -> int:
    if key.task in _BEFORE_THE_STEP:
        return 0
    return 1 if key.micro_step is not None else 2
