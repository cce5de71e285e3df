"""The ``.npy`` files of a row, measured by numpy alone: to load torch takes longer than to compare a small graph."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from msprobe_hooks.dump.tensor_files.dtypes import plain_dtype
from msprobe_hooks.dump.tensor_files.npy import Array, dtype_name, read_array
from msprobe_hooks.errors import DumpError
from msprobe_hooks.recording.array_statistics import measure
from pytest_msprobe.engine.values.tensor_paths import tensor_path
from pytest_msprobe.modes.compare.measure.accumulate import (
    EXACT_INTEGERS,
    LENGTH,
    Measured,
    Precision,
    Walk,
    array_parts,
    equal_metrics,
)
from pytest_msprobe.modes.compare.rows import Row
from pytest_msprobe.results.skip_reasons import Skip

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from msprobe_hooks.dump.values import Value
    from pytest_msprobe.modes.compare.measure.chunk import Floats

# What numpy and dumps call alike.
_KNOWN = frozenset("float64 float32 float16 int64 int32 int16 int8 uint64 uint32 uint16 uint8 bool".split())


def measure_npy_files(row: Row, target: Dump, golden: Dump) -> Row | None:
    """Return a row with the metrics of its two files, None where these ask for torch."""
    assert row.target is not None
    assert row.golden is not None
    mine = _load(row.target, target)
    other = None if mine is None else _load(row.golden, golden)
    if mine is None or other is None:
        return None
    target_value = _with_statistics(row.target, mine)
    if _are_equal(mine, other):
        metrics = equal_metrics(mine.size, has_ulps=mine.dtype.kind == "f")
        return replace(row, target=target_value, golden=_with_those_of(target_value, row.golden), metrics=metrics)
    measured = measure_arrays(mine, other)
    golden_value = _with_statistics(row.golden, other)
    return replace(row, target=target_value, golden=golden_value, metrics=measured.scaled_metrics, worst=measured.worst)


def _load(value: Value, dump: Dump) -> Array | None:
    """Return what a value's file holds, None where that is not what was recorded, or needs torch to be read."""
    name = value.data_name or ""
    if not name.endswith(".npy") or plain_dtype(value.dtype) not in _KNOWN:
        return None
    array = dump.array_at_hand(name)
    if array is None:
        try:
            array = read_array(tensor_path(dump.tensor_folder, name))
        except (OSError, ValueError, DumpError, Skip):
            return None
    if array.size == math.prod(value.shape) and not dump.keeps_shapes:
        array = array.reshape(value.shape)
    is_recorded = array.size and array.shape == value.shape and dtype_name(array.dtype) == plain_dtype(value.dtype)
    return array if is_recorded and _is_exact_in_float64(array) else None


def _are_equal(mine: Array, other: Array) -> bool:
    """Return whether two arrays are of one dtype and have the same elements; NaN gives a "no"."""
    return mine.dtype == other.dtype and all((ours == theirs).all() for _, ours, theirs in array_parts(mine, other))


def _is_exact_in_float64(array: Array) -> bool:
    return array.dtype.kind not in "iu" or bool(array.min() >= -EXACT_INTEGERS and array.max() <= EXACT_INTEGERS)


def measure_arrays(target: Array, golden: Array) -> Measured:
    """Measure two arrays of one shape as ``measure_tensors`` does two tensors."""
    precision = _precision(target.dtype, golden.dtype)
    is_narrow = precision is not None and max(target.itemsize, golden.itemsize) <= np.dtype(np.float32).itemsize
    dtype = np.float32 if is_narrow else np.float64

    def parts() -> Iterator[tuple[int, Floats, Floats]]:
        for start, mine, other in array_parts(target, golden):
            yield start, mine.astype(dtype, copy=False), other.astype(dtype, copy=False)

    return Walk(parts, precision, min(LENGTH, target.size)).measured(target.shape)


def _with_statistics(value: Value, array: Array) -> Value:
    """Return a value with its statistics, which a dump of a static graph leaves to its files."""
    if value.statistics is not None:
        return value
    numbers = measure(array)
    return replace(value, statistics=(numbers.max, numbers.min, numbers.mean, numbers.norm))


def _with_those_of(other: Value, value: Value) -> Value:
    """Return a value with the statistics of one that is equal to it, where it has none itself."""
    return value if value.statistics is not None else replace(value, statistics=other.statistics)


def _precision(*dtypes: np.dtype[Any]) -> Precision | None:
    """Return that of the coarser dtype, None where one of them is no float."""
    if any(dtype.kind != "f" for dtype in dtypes):
        return None
    coarser = min(map(np.finfo, dtypes), key=lambda form: form.nmant)
    return Precision(int(coarser.nmant), float(coarser.smallest_normal))
