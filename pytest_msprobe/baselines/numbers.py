"""A baseline's rows as what the standards take."""

from __future__ import annotations

import math

import torch

from msprobe_standards import Bounds, RecordedOutput
from pytest_msprobe.baselines.rows import OutputRow


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


def torch_dtype(name: str) -> torch.dtype | None:
    """Return the dtype that is spelled ``torch.float32`` and the like, None for anything else."""
    package, _, attribute = name.partition(".")
    found = getattr(torch, attribute, None) if package == "torch" else None
    return found if isinstance(found, torch.dtype) else None
