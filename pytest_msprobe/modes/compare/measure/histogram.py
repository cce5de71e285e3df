"""Histogram of a tensor's errors for the page: elements counted by decades of relative error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from msgspec.structs import replace

from msprobe_hooks.errors import DumpError
from msprobe_standards import chunks
from pytest_msprobe.modes.compare.measure.load import load
from pytest_msprobe.results.outcomes import Skip

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.modes.compare.rows import Row

# Relative errors from below float32's rounding, 6e-8, to the size of the value.
_DECADES = torch.logspace(-9, 0, 10, dtype=torch.float64)
_BINS = len(_DECADES) + 2


def with_histogram(row: Row, target: Dump, golden: Dump) -> Row:
    """Return a row with the histogram of its tensors, where it was measured element by element.

    That of transformed tensors was taken when they were measured.
    """
    if row.transformed or "max_abs_err" not in row.metrics or row.target is None or row.golden is None:
        return row
    try:
        return replace(row, histogram=error_histogram(load(row.target, target), load(row.golden, golden)))
    except (Skip, DumpError):
        return row


def error_histogram(target: torch.Tensor, golden: torch.Tensor) -> tuple[int, ...]:
    """Count the elements of two CPU tensors of one shape by relative error |t - g| / |g|.

    The first count is of equal elements (NaN against NaN and inf against the same inf among them), the next of errors
    up to 1e-9, then up to 1e-8 and so on to 1; the last is of those above 1, NaN or inf on one side among them.
    """
    counts = torch.zeros(_BINS, dtype=torch.int64)
    for _, target_part, golden_part in chunks(target.detach(), golden.detach()):
        if target_part.is_complex() or golden_part.is_complex():
            target_part, golden_part = target_part.to(torch.complex128), golden_part.to(torch.complex128)
        else:
            target_part, golden_part = target_part.double(), golden_part.double()
        equal = (target_part == golden_part) | (target_part.isnan() & golden_part.isnan())
        error = ((target_part - golden_part).abs() / golden_part.abs()).nan_to_num(nan=float("inf"))
        place = torch.bucketize(error, _DECADES) + 1
        counts += torch.bincount(place.masked_fill(equal, 0).flatten(), minlength=_BINS)
    return tuple(counts.tolist())
