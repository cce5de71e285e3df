"""The recorded tensors of a row, read and measured one pair at a time, those of sparse layouts by what they store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from msgspec.structs import replace

from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.dump.values import Value
from msprobe_hooks.errors import DumpError
from msprobe_hooks.torch.statistics import measure
from msprobe_standards.tensor_layouts import is_plain
from pytest_msprobe.engine.values.dtypes import torch_dtype_name
from pytest_msprobe.engine.values.tensor_files import load_tensor
from pytest_msprobe.modes.compare.measure.accumulate import equal_metrics, with_statistics
from pytest_msprobe.modes.compare.measure.own_metrics import measure_own
from pytest_msprobe.modes.compare.measure.tensor_pairs import are_equal, error_histogram, measure_tensors
from pytest_msprobe.modes.compare.rows import Row
from pytest_msprobe.results.outcomes import Skip

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.modes.compare.measure.own_metrics import Metric


@dataclass(frozen=True, slots=True)
class Pair:
    """Two plain tensors of one shape; ``places`` are the coordinates of their rows where they hold what is stored."""

    target: torch.Tensor
    golden: torch.Tensor
    places: torch.Tensor | None = None

    def coordinates(self, index: tuple[int, ...] | None) -> tuple[int, ...] | None:
        """Return where in the recorded tensors an element of the pair is."""
        if index is None or self.places is None:
            return index
        return (*map(int, self.places[:, index[0]]), *index[1:])


def plain_pair(target: torch.Tensor, golden: torch.Tensor) -> Pair:
    """Return the elements of two tensors of one shape: of sparse ones those that either stores, 0 for the other's.

    Quantized tensors count by the numbers that they represent. A sparse tensor is made dense where the other is dense.
    """
    target, golden = (tensor.dequantize() if tensor.is_quantized else tensor for tensor in (target, golden))
    if is_plain(target) or is_plain(golden):
        return Pair(*(tensor if is_plain(tensor) else tensor.to_dense() for tensor in (target, golden)))
    stored = [tensor.to_sparse(layout=torch.sparse_coo).coalesce() for tensor in (target, golden)]
    if stored[0].sparse_dim() != stored[1].sparse_dim():
        return Pair(target.to_dense(), golden.to_dense())
    indices = [tensor.indices() for tensor in stored]
    places, rows = torch.unique(torch.cat(indices, dim=1), dim=1, return_inverse=True)
    parts = rows.split([index.shape[1] for index in indices])
    values = [_spread(sparse.values(), at, places.shape[1]) for sparse, at in zip(stored, parts, strict=True)]
    return Pair(values[0], values[1], places)


def _spread(values: torch.Tensor, rows: torch.Tensor, count: int) -> torch.Tensor:
    spread = torch.zeros((count, *values.shape[1:]), dtype=values.dtype)
    spread[rows] = values
    return spread


def measure_files(
    row: Row, target: Dump, golden: Dump, metrics: Mapping[str, Metric] = {}, first: int | None = None
) -> Row:
    """Return a row with the metrics of its two files; a missing or damaged one is the row's message, not an error.

    ``metrics`` are the user's. Of tensors of which the ``first`` rows count alone, those are measured.
    """
    try:
        target_tensor = load(row.target, target)
        golden_tensor = load(row.golden, golden)
    except Skip as skip:
        return replace(row, unmeasured="no file", messages=(str(skip),))
    except DumpError as error:
        return replace(row, unmeasured="unreadable", messages=(str(error),))
    assert row.target is not None
    assert row.golden is not None
    target_value = with_statistics(row.target, lambda: measure(target_tensor))
    row = replace(row, target=target_value, golden=with_statistics(row.golden, lambda: measure(golden_tensor)))
    pair = plain_pair(*(tensor if first is None else tensor[:first] for tensor in (target_tensor, golden_tensor)))
    return measure_pair(row, pair, metrics)


def measure_pair(row: Row, pair: Pair, metrics: Mapping[str, Metric]) -> Row:
    """Return a row with the metrics of its two tensors, and the user's."""
    if not pair.target.numel():
        return replace(row, unmeasured="empty")
    if are_equal(pair.target, pair.golden):
        has_ulps = pair.target.dtype.is_floating_point or pair.target.dtype.is_complex
        row = replace(row, metrics=equal_metrics(pair.target.numel(), has_ulps=has_ulps))
    else:
        measured = measure_tensors(pair.target, pair.golden)
        row = replace(row, metrics=measured.scaled_metrics, worst=pair.coordinates(measured.worst))
    if not metrics:
        return row
    own, problems = measure_own(metrics, pair.target, pair.golden)
    return replace(row, metrics={**row.metrics, **own}, messages=(*row.messages, *problems))


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


def load(value: Value | None, dump: Dump) -> torch.Tensor:
    """Return a recorded tensor. Raises Skip where its file is missing, DumpError where it is unusable."""
    assert value is not None
    element = TensorElement(
        type=value.type, dtype=torch_dtype_name(value.dtype), shape=value.shape, data_name=value.data_name
    )
    return load_tensor(element, dump.tensor_folder, mapped=True, keeps_shape=dump.keeps_shapes)
