"""The recorded tensors of a row, read and measured one pair at a time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from msgspec.structs import replace

from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.dump.values import Value
from msprobe_hooks.errors import DumpError
from pytest_msprobe.engine.values.dtypes import torch_dtype_name
from pytest_msprobe.engine.values.tensor_files import load_tensor
from pytest_msprobe.modes.compare.layouts import plain_pair
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, Row
from pytest_msprobe.modes.compare.tensors import measure_tensors
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
    pair = plain_pair(target_tensor, golden_tensor)
    if not pair.target.numel():
        return replace(row, unmeasured="empty")
    measured = measure_tensors(pair.target, pair.golden)
    metrics = measured.metrics
    scaled = max(
        _scaled(metrics["max_abs_err"], measured.max_golden), _scaled(metrics["euclidean"], measured.golden_norm)
    )
    return replace(row, metrics={**metrics, SCALED_ERROR: scaled}, worst=pair.coordinates(measured.worst))


def _scaled(error: float, scale: float) -> float:
    if error == 0:
        return 0.0
    return error / scale if scale and math.isfinite(error) else math.inf


def load(value: Value | None, dump: Dump) -> torch.Tensor:
    """Return a recorded tensor. Raises Skip where its file is missing, DumpError where it is unusable."""
    assert value is not None
    element = TensorElement(
        type=value.type, dtype=torch_dtype_name(value.dtype), shape=value.shape, data_name=value.data_name
    )
    return load_tensor(element, dump.tensor_folder, mapped=True)
