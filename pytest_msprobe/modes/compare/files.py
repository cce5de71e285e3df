"""The recorded tensors of a row, read and measured one pair at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from msgspec.structs import replace

from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.dump.values import Value
from msprobe_hooks.errors import DumpError
from msprobe_hooks.torch.statistics import measure
from pytest_msprobe.engine.values.dtypes import torch_dtype_name
from pytest_msprobe.engine.values.tensor_files import load_tensor
from pytest_msprobe.modes.compare.layouts import plain_pair
from pytest_msprobe.modes.compare.rows import Row
from pytest_msprobe.modes.compare.tensors import are_equal, measure_tensors
from pytest_msprobe.modes.compare.walk import equal_metrics
from pytest_msprobe.results.skips import Skip

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump


def measure_files(row: Row, target: Dump, golden: Dump) -> Row:
    """Return a row with the metrics of its two files; a missing or damaged one is the row's message, not an error."""
    try:
        target_tensor = load(row.target, target)
        golden_tensor = load(row.golden, golden)
    except Skip as skip:
        return replace(row, unmeasured="no file", messages=(str(skip),))
    except DumpError as error:
        return replace(row, unmeasured="unreadable", messages=(str(error),))
    row = replace(
        row, target=_with_statistics(row.target, target_tensor), golden=_with_statistics(row.golden, golden_tensor)
    )
    pair = plain_pair(target_tensor, golden_tensor)
    if not pair.target.numel():
        return replace(row, unmeasured="empty")
    if are_equal(pair.target, pair.golden):
        has_ulps = pair.target.dtype.is_floating_point or pair.target.dtype.is_complex
        return replace(row, metrics=equal_metrics(pair.target.numel(), has_ulps=has_ulps))
    measured = measure_tensors(pair.target, pair.golden)
    return replace(row, metrics=measured.scaled_metrics, worst=pair.coordinates(measured.worst))


def _with_statistics(value: Value | None, tensor: torch.Tensor) -> Value | None:
    """Return a value with its statistics, which a dump of a static graph leaves to its files."""
    if value is None or value.statistics is not None:
        return value
    numbers = measure(tensor)
    return replace(value, statistics=(numbers.max, numbers.min, numbers.mean, numbers.norm))


def load(value: Value | None, dump: Dump) -> torch.Tensor:
    """Return a recorded tensor. Raises Skip where its file is missing, DumpError where it is unusable."""
    assert value is not None
    element = TensorElement(
        type=value.type, dtype=torch_dtype_name(value.dtype), shape=value.shape, data_name=value.data_name
    )
    return load_tensor(element, dump.tensor_folder, mapped=True, keeps_shape=dump.keeps_shapes)
