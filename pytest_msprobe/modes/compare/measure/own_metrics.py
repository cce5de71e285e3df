"""Metrics of the user's own: functions of the two tensors of a value, one number each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from pytest_msprobe.modes.compare.rows import SCALED_ERROR, STATISTICS_METRICS, TENSOR_METRICS

if TYPE_CHECKING:
    import torch

    Metric: TypeAlias = Callable[[torch.Tensor, torch.Tensor], float]

#: The names of the metrics that every comparison has.
BUILT_IN_METRICS = frozenset({SCALED_ERROR, *TENSOR_METRICS, *STATISTICS_METRICS})
#: How the message of a metric that failed begins.
PROBLEM = "no metric "
_NARROW_BYTES = 4  # float32: arithmetic on narrower ones rounds to them, and numpy has no bfloat16


class CompareMetricRegistry:
    """Metrics of comparisons by name; plugins add theirs in ``pytest_msprobe_register_compare_metrics``."""

    def __init__(self, metrics: Mapping[str, Metric] = {}) -> None:
        self.metrics: dict[str, Metric] = {}
        for name, function in metrics.items():
            self.add(name, function)

    def add(self, name: str, function: Metric) -> None:
        """Measure every pair of tensors by ``function``; its name is a column, and a policy may require it.

        Args:
            name: The name of the metric, as a Python name.
            function: What returns a number for the target's and the golden tensor: CPU tensors of one shape, which it
                must not change. Floats of fewer than 32 bits are given as float32, other dtypes as they were recorded.

        Raises:
            ValueError: The name is none, or is taken.
        """
        if not name.isidentifier():
            raise ValueError(f"metric {name!r}: a name has letters, digits and underscores")
        if name in BUILT_IN_METRICS or self.metrics.setdefault(name, function) is not function:
            raise ValueError(f"metric {name!r} exists already; choose another name")


def measure_own(
    metrics: Mapping[str, Metric], target: torch.Tensor, golden: torch.Tensor
) -> tuple[dict[str, float], tuple[str, ...]]:
    """Return the user's metrics of two tensors of one shape, and what went wrong; a metric that failed is NaN."""
    target, golden = (_widened(tensor) for tensor in (target, golden))
    values: dict[str, float] = {}
    problems: list[str] = []
    for name, function in metrics.items():
        try:
            values[name] = float(function(target, golden))
        except Exception as error:
            first_line = (str(error).strip().splitlines() or [""])[0]
            values[name] = math.nan
            problems.append(f"{PROBLEM}{name}: {type(error).__name__}: {first_line}")
    return values, tuple(problems)


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() < _NARROW_BYTES else tensor
