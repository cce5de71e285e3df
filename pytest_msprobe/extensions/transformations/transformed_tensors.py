"""Recorded tensors of two calls measured after the steps of their transformations."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from msgspec.structs import replace

from msprobe_hooks.dump.values import Value, read_values
from msprobe_hooks.errors import DumpError
from msprobe_hooks.torch.statistics import measure
from msprobe_standards.dtypes import family
from msprobe_standards.tensor_layouts import is_plain
from pytest_msprobe.extensions.transformations.entries import Entry, Transformed, judged_as, refused, refused_shapes
from pytest_msprobe.extensions.transformations.step import ALL_KEPT, StepError
from pytest_msprobe.modes.compare.measure.load import load, measure_pair, plain_pair
from pytest_msprobe.modes.compare.measure.tensor_pairs import error_histogram
from pytest_msprobe.results.outcomes import Skip

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.modes.compare.measure.compared_sides import ComparedSides
    from pytest_msprobe.modes.compare.rows import Row


class RecordedTensors:
    """The tensors of one recorded call."""

    def __init__(self, dump: Dump, record: str) -> None:
        self._dump = dump
        self._record = record

    def tensor(self, place: str) -> torch.Tensor:
        """Return the tensor in a place of the call. Raises StepError where there is none, or its file is unusable."""
        value = next((placed.value for placed in read_values(self._dump, self._record) if placed.place == place), None)
        if value is None or not value.is_tensor or not value.data_name:
            raise StepError(f"{self._record} has no recorded tensor {place}")
        try:
            return load(value, self._dump)
        except (DumpError, Skip) as error:
            raise StepError(str(error)) from None


class _RefusedError(Exception):
    """An entry does not fit a tensor."""

    def __init__(self, entry: Entry, problem: str) -> None:
        super().__init__(problem)
        self.entry = entry


def measure_transformed(
    row: Row, sides: ComparedSides, records: tuple[str, str], both: tuple[Transformed | None, ...]
) -> Row:
    """Return a row with the metrics of its two files after their transformations.

    An entry that does not fit, and a missing or damaged file, is the row's message and not an error.
    """
    assert row.target is not None
    assert row.golden is not None
    dumps = (sides.target, sides.golden)
    try:
        mine, other = (
            _turned(value, RecordedTensors(dump, record), dump, transformed)
            for value, dump, record, transformed in zip((row.target, row.golden), dumps, records, both, strict=True)
        )
    except Skip as skip:
        return replace(row, unmeasured="no file", messages=(str(skip),))
    except DumpError as error:
        return replace(row, unmeasured="unreadable", messages=(str(error),))
    except _RefusedError as error:
        return refused(row, error.entry, str(error))
    if mine.tensor.shape != other.tensor.shape:
        return refused_shapes(row, both, list(mine.tensor.shape), list(other.tensor.shape))
    pair = plain_pair(mine.tensor, other.tensor)
    row = measure_pair(replace(row, target=mine.value, golden=other.value), pair, sides.metrics)
    if mine.is_computed or other.is_computed:
        # What was computed has not the precision of its dtype, so that units in the last place say nothing.
        row = replace(row, metrics={name: number for name, number in row.metrics.items() if name != "max_ulp_error"})
    if sides.has_histograms and pair.target.numel():
        row = replace(row, histogram=error_histogram(pair.target, pair.golden))
    return judged_as(row, both)


class _Turned(NamedTuple):
    """A value's tensor after the steps, the value as it would be recorded then, and whether a step computed it."""

    value: Value
    tensor: torch.Tensor
    is_computed: bool


def _turned(value: Value, call: RecordedTensors, dump: Dump, transformed: Transformed | None) -> _Turned:
    recorded = load(value, dump)
    if transformed is None:
        return _Turned(value, recorded, is_computed=False)
    tensor = recorded.dequantize() if recorded.is_quantized else recorded
    tensor = tensor if is_plain(tensor) else tensor.to_dense()
    for entry in transformed.entries:
        try:
            for step in entry.steps:
                tensor = step.apply(tensor, call)
        except StepError as error:
            raise _RefusedError(entry, f"{error} ({value.name})") from None
        except RuntimeError as error:
            # A result that is too large for memory, or a dtype for which torch has no kernel.
            first_line = (str(error).strip().splitlines() or [""])[0]
            raise _RefusedError(entry, f"{first_line} ({value.name})") from None
    is_computed = tensor.dtype == torch.float64 and transformed.keeps != ALL_KEPT
    if tensor.dtype == torch.float64 and recorded.dtype != torch.float64:
        tensor = tensor.float()
    tensor = tensor.contiguous()
    numbers = measure(tensor)
    statistics = (numbers.max, numbers.min, numbers.mean, numbers.norm)
    dtype = value.dtype if family(recorded.dtype) == family(tensor.dtype) else str(tensor.dtype)
    turned = replace(value, dtype=dtype, shape=tuple(tensor.shape), statistics=statistics)
    return _Turned(turned, tensor, is_computed)
