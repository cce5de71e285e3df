"""Verdicts from numbers that an earlier run measured and wrote down, without its tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch

from msprobe_standards.dtypes import Bounds, msprobe_bounds
from msprobe_standards.judging import fitting
from msprobe_standards.metrics import Metrics
from msprobe_standards.protocol import Standard
from msprobe_standards.verdict import Verdict, is_rough


@dataclass(frozen=True)
class RecordedOutput:
    """The recorded numbers of one output.

    Args:
        dtype: The target's dtype.
        numel: Its number of elements.
        metrics: The metrics by name, counted by `msprobe_bounds`.
        own_bounds: The bounds of the standard that judged the output then.
        own_metrics: The metrics by name, counted by ``own_bounds``.
    """

    dtype: torch.dtype
    numel: int
    metrics: Mapping[str, float]
    own_bounds: Bounds | None = None
    own_metrics: Mapping[str, float] = field(default_factory=dict)

    def metrics_for(self, standard: Standard) -> Metrics | None:
        """Return the metrics that a standard reads; None where one is missing or was counted by other bounds."""
        bounds = standard.bounds(self.dtype)
        if bounds == msprobe_bounds(self.dtype):
            numbers = self.metrics
        else:
            numbers = self.own_metrics if bounds == self.own_bounds else {}
        if not numbers.keys() >= standard.wanted | {"nonfinite_mismatch"}:
            return None
        return Metrics(numbers, self.dtype, self.numel)


def judge_recorded(
    target: RecordedOutput, *, standard: Standard, recorded: Callable[[Standard], Metrics | None] | None = None
) -> Verdict | None:
    """Judge an output by its recorded numbers.

    Args:
        target: The numbers of the output.
        standard: The standard.
        recorded: Looks up the baseline's numbers, as for `judge`; called only where the outcome depends on them.

    Returns:
        The verdict; None where the numbers are not those that the standard reads.
    """
    standard = fitting(standard, target.dtype)
    if not target.numel:
        return Verdict("pass", standard.name)
    if standard.exact_passes and target.metrics.get("cast_error_rate") == 0:
        return Verdict("pass", standard.name, "", {"cast_error_rate": 0.0}, {"cast_error_rate": 0.0})
    metrics = target.metrics_for(standard)
    if metrics is None:
        return None
    settled = standard.settled(metrics)
    if settled is not None and not is_rough(settled):
        return settled
    baseline = recorded(standard) if recorded else None
    if settled is not None and baseline is None:
        return settled
    verdict = standard.decide(metrics, baseline)
    return verdict if settled is None else replace(verdict, reason=settled.reason)
