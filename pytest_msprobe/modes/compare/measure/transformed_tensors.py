"""Histogram of a tensor's errors by decades, for the page, and measured tensors that are transformed first."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from msgspec.structs import replace

from msprobe_hooks.dump.values import Value, read_values
from msprobe_hooks.errors import DumpError
from msprobe_hooks.torch.statistics import measure
from msprobe_standards import chunks
from msprobe_standards.dtypes import family
from msprobe_standards.tensor_layouts import is_plain
from pytest_msprobe.extensions.transformations.step import ALL_KEPT, StepError
from pytest_msprobe.modes.compare.measure.load import load, measure_pair, plain_pair
from pytest_msprobe.modes.compare.measure.transformed_rows import judged_as, refused, refused_shapes
from pytest_msprobe.results.skip_reasons import Skip

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.extensions.transformations.transformations import Entry, Transformed
    from pytest_msprobe.modes.compare.measure.compared_sides import ComparedSides
    from pytest_msprobe.modes.compare.rows import Row

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
        mine, other = (
            _turned(value, RecordedTensors(dump, record), dump, transformed)
            for value, dump, record, transformed in zip((row.target, row.golden), dumps, records, found, strict=True)
        )
    except Skip as skip:
        return replace(row, unmeasured="no file", messages=(str(skip),))
    except DumpError as error:
        return replace(row, unmeasured="unreadable", messages=(str(error),))
    except _RefusedError as error:
        return refused(row, error.entry, str(error))
    if mine.tensor.shape != other.tensor.shape:
        return refused_shapes(row, found, list(mine.tensor.shape), list(other.tensor.shape))
    pair = plain_pair(mine.tensor, other.tensor)
    row = measure_pair(replace(row, target=mine.value, golden=other.value), pair, sides.metrics)
    if mine.is_computed or other.is_computed:
        # What was computed has not the precision of its dtype, so that units in the last place say nothing.
        row = replace(row, metrics={name: number for name, number in row.metrics.items() if name != "max_ulp_error"})
    if sides.has_histograms and pair.target.numel():
        row = replace(row, histogram=error_histogram(pair.target, pair.golden))
    return judged_as(row, found)


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
