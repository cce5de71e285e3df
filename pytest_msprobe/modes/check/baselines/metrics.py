"""A baseline's rows as what the standards take."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from msprobe_standards import Bounds, Metrics, RecordedOutput, Standard
from pytest_msprobe.modes.check.baselines.rows import OutputRow

# Golden results of the same inputs agree this well from one machine to another, those of others seldom do.
_SAME_SCALE = 1e-3


def recorded_output(row: OutputRow) -> RecordedOutput | None:
    """Return a row's numbers; None where it has none, or is of a dtype that this torch does not have."""
    dtype = torch_dtype(row.dtype)
    numel: int = math.prod(row.shape)
    if dtype is None or (numel and not row.metrics):
        return None
    try:
        bounds = Bounds(**row.own_bounds) if row.own_bounds else None
    except TypeError:
        # Lines that this version does not draw: what they counted serves no standard here.
        bounds = None
    # A product of many sizes has more digits than a float; as a number of elements all such are alike.
    return RecordedOutput(dtype, min(numel, 2**53), row.metrics, bounds, row.own_metrics)


def baseline_metrics(
    row: OutputRow | None,
    standard: Standard,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    scale: Callable[[], float | None],
) -> Metrics | str:
    """Return what a standard reads of a baseline's row for an output, or why the row does not serve it.

    ``scale`` gives the mean magnitude of golden here: where the row's is another, so were the inputs.
    """
    if row is None:
        return "there is no row"
    recorded = recorded_output(row)
    if recorded is None:
        return f"its row has no numbers: {row.reason}" if row.reason else "its row has no numbers"
    if (recorded.dtype, row.shape) != (dtype, shape):
        return f"its row is for {row.dtype} {row.shape}"
    metrics = recorded.metrics_for(standard)
    if metrics is None:
        return f"its row lacks numbers of standard {standard.name}; record it under the same policy"
    return other_inputs(row, scale) or metrics


def other_inputs(row: OutputRow, scale: Callable[[], float | None]) -> str:
    """Say how a row's golden result shows that its inputs were others than here; empty where it does not."""
    there, here = row.metrics.get("scale"), scale()
    if there is None or here is None or math.isclose(there, here, rel_tol=_SAME_SCALE):
        return ""
    return f"its inputs differ: the mean magnitude of golden was {there:.6g} there and is {here:.6g} here"


def torch_dtype(name: str) -> torch.dtype | None:
    """Return the dtype that is spelled ``torch.float32`` and the like, None for anything else."""
    package, _, attribute = name.partition(".")
    found = getattr(torch, attribute, None) if package == "torch" else None
    return found if isinstance(found, torch.dtype) else None
