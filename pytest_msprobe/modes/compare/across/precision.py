"""The precision that a run was computed in up to a call.

The kernels of two frameworks never round alike, and in mixed precision a value of 32 bits holds the roundings of the 16
bits that it was made of: it is as precise as the coarsest tensor before it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_msprobe.modes.compare.rules import coarser, float_dtype

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from msprobe_hooks.dump.values import Value
    from pytest_msprobe.modes.compare.rows import Row

_DTYPE = re.compile(rb'"dtype": ?"((?:torch\.)?\w+)"')


def coarsest_so_far(dump: Dump) -> dict[str, str]:
    """Return the coarsest float dtype of a run's tensors up to each record, that record included; finest, float32."""
    found: dict[str, str] = {}
    known: dict[bytes, str] = {}
    coarsest = "float32"
    for name, raw in dump.records.items():
        for dtype in set(_DTYPE.findall(bytes(raw))):
            if dtype not in known:
                known[dtype] = float_dtype(dtype.decode()) or "float64"
            coarsest = coarser(coarsest, known[dtype])
        found[name] = coarsest
    return found


def at_precision(row: Row, target: str, golden: str) -> Row:
    """Return a row with both sides' floats as coarse as their runs were; parameters are not computed."""
    if row.group == "parameters":
        return row
    return replace(row, target=_as_coarse(row.target, target), golden=_as_coarse(row.golden, golden))


def _as_coarse(value: Value | None, dtype: str) -> Value | None:
    own = float_dtype(value.dtype) if value is not None else None
    if value is None or own is None or own == "float64" or coarser(own, dtype) == own:
        return value
    return replace(value, dtype=dtype)
