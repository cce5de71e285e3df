"""How a series is called, in ids, after ``-k`` and in messages, and its place in the order of computation."""

from __future__ import annotations

from collections.abc import Sequence

from msprobe_hooks.extensions.monitor.series.paths import RECORDED_TASKS
from msprobe_hooks.extensions.monitor.series.reader import SeriesKey
from pytest_msprobe.extensions.monitor.series_kinds import Kind, kind_of


def item_name(key: SeriesKey) -> str:
    """Return a series' name, as ``grad_reduced/layers.0.weight/norm`` or ``actv/vpp1:layers.0.input:micro2/max``.

    The first virtual pipeline stage and the first micro step go without saying.
    """
    return f"{key.task}/{tensor_name(key)}/{key.statistic}"


def tensor_name(key: SeriesKey) -> str:
    """Return the part of the name that identifies the tensor."""
    stage = f"vpp{key.vpp_stage}:" if key.vpp_stage else ""
    micro = f":micro{key.micro_step}" if key.micro_step else ""
    return f"{stage}{key.name}{micro}"


#: Where a series stands within a step: earlier ones are computed earlier.
Place = tuple[int, int, int]


def places(keys: Sequence[SeriesKey]) -> dict[SeriesKey, Place]:
    """Return the place of each series; ``keys`` are in the order computed but for micro steps, which repeat it."""
    return {key: (_phase(key), key.micro_step or 0, index) for index, key in enumerate(keys)}


def _phase(key: SeriesKey) -> int:
    kind = kind_of(key)
    if key.micro_step is not None or key.task in RECORDED_TASKS:
        return 1
    if kind is Kind.PARAMETER:
        return 0
    if key.task == "grad_unreduced":
        return 2
    if kind is Kind.COLLECTIVE:
        # What a rank gives comes before what all ranks make of it, the reduced gradients among that.
        return 3 if "/pre_" in key.name else 4
    return 5
