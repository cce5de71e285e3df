"""Tensors that are transformed and measured: whole, so that memory is that of both and of some copies in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from msgspec.structs import replace

from msprobe_hooks.dump.values import Value, read_values
from msprobe_hooks.errors import DumpError
from msprobe_hooks.torch.statistics import measure
from msprobe_standards.dtypes import family
from msprobe_standards.tensor_layouts import is_plain
from pytest_msprobe.modes.compare.measure.histogram import error_histogram
from pytest_msprobe.modes.compare.measure.load import load, measure_pair, plain_pair
from pytest_msprobe.modes.compare.measure.transformed_values import refused, refused_shapes
from pytest_msprobe.modes.compare.transform.step import StepError
from pytest_msprobe.results.skip_reasons import Skip

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.modes.compare.measure.compared_sides import ComparedSides
    from pytest_msprobe.modes.compare.rows import Row
    from pytest_msprobe.modes.compare.transform.transformations import Entry, Transformed


class RecordedTensors:
    """The tensors of one recorded call."""

    def __init__(self, dump: Dump, record: str) -> None:
        self._dump = dump
        self._record = record

    def tensor(self, place: str) -> torch.Tensor:
        """Return the tensor in a place of the call. Raises StepError where there is none, or its file is unusable."""
        value = next((each.value for each in read_values(self._dump, self._record) if each.place == place), None)
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
    row: Row, sides: ComparedSides, records: tuple[str, str], found: tuple[Transformed | None, ...]
) -> Row:
    """Return a row with the metrics of its two files after their transformations.

    An entry that does not fit, and a missing or damaged file, is the row's message and not an error.
    """
    assert row.target is not None
    assert row.golden is not None
    dumps = (sides.target, sides.golden)
    try:
        (target, mine), (golden, other) = (
            _turned(value, RecordedTensors(dump, record), dump, transformed)
            for value, dump, record, transformed in zip((row.target, row.golden), dumps, records, found, strict=True)
        )
    except Skip as skip:
        return replace(row, unmeasured="no file", messages=(str(skip),))
    except DumpError as error:
        return replace(row, unmeasured="unreadable", messages=(str(error),))
    except _RefusedError as error:
        return refused(row, error.entry, str(error))
    if mine.shape != other.shape:
        return refused_shapes(row, found, list(mine.shape), list(other.shape))
    pair = plain_pair(mine, other)
    row = measure_pair(replace(row, target=target, golden=golden), pair, sides.metrics)
    if all(found):
        # Neither side has the precision of its dtype any more, so that units in its last place say nothing.
        row = replace(row, metrics={name: number for name, number in row.metrics.items() if name != "max_ulp_error"})
    if sides.has_histograms and pair.target.numel():
        row = replace(row, histogram=error_histogram(pair.target, pair.golden))
    return row


def _turned(
    value: Value, call: RecordedTensors, dump: Dump, transformed: Transformed | None
) -> tuple[Value, torch.Tensor]:
    """Return a value's tensor after the steps, and the value as it would have been recorded then."""
    recorded = load(value, dump)
    if transformed is None:
        return value, recorded
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
    if tensor.dtype == torch.float64 and recorded.dtype != torch.float64:
        tensor = tensor.float()
    tensor = tensor.contiguous()
    numbers = measure(tensor)
    precision = next((entry.precision for entry in reversed(transformed.entries) if entry.precision), None)
    dtype = value.dtype if family(recorded.dtype) == family(tensor.dtype) else str(tensor.dtype)
    return (
        replace(
            value,
            dtype=f"torch.{precision}" if precision else dtype,
            shape=tuple(tensor.shape),
            statistics=(numbers.max, numbers.min, numbers.mean, numbers.norm),
        ),
        tensor,
    )
