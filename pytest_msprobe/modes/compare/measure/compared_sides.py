"""The two dumps of a comparison, and what is done to their tensors on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_msprobe.extensions.transformations.transformations import Transformations

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.modes.compare.measure.own_metrics import Metric
    from pytest_msprobe.modes.compare.rows import DataMode


@dataclass(frozen=True)
class ComparedSides:
    """Two dumps that are compared by ``mode``.

    ``metrics`` are the user's, measured of tensors besides the others. ``has_histograms`` asks for the spread of errors
    of tensors that are transformed; of others it is measured afterwards.
    """

    target: Dump
    golden: Dump
    mode: DataMode
    transformations: Transformations = field(default_factory=Transformations)
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    has_histograms: bool = False
