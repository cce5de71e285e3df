"""Autocast, detected by the dtypes of a record."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from msprobe_hooks.dump.schema import ForwardRecord, tensors_of
from pytest_msprobe.engine.values.dtypes import dtype_named

_AUTOCAST_DTYPES = (torch.float16, torch.bfloat16)


def recorded_autocast(record: ForwardRecord, inputs: Iterable[torch.dtype]) -> torch.dtype | None:
    """Return the dtype of the autocast region that a call was recorded in, None where it needs none.

    Floats of several widths, or a float output of another width than the inputs, occur where autocast chose.
    """
    floats = {dtype for dtype in inputs if dtype.is_floating_point}
    first = next(iter(tensors_of(record.output)), None)
    if first is not None and dtype_named(first.dtype).is_floating_point:
        floats.add(dtype_named(first.dtype))
    if len(floats) < 2:
        return None
    return next((dtype for dtype in _AUTOCAST_DTYPES if dtype in floats), None)
