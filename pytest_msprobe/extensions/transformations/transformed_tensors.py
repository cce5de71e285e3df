"""Comparison of recorded tensors after transformations, and the rows that say what was transformed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from msgspec.structs import replace

from msprobe_hooks.dump.values import Value, read_values
from msprobe_hooks.errors import DumpError
from msprobe_hooks.torch.statistics import measure
from msprobe_standards.dtypes import family
from msprobe_standards.tensor_layouts import is_plain
from pytest_msprobe.engine.import_torch import import_torch
from pytest_msprobe.extensions.transformations.step import ALL_KEPT, StepError
from pytest_msprobe.modes.compare.measure.call_values import measure_statistics, scaled_error
from pytest_msprobe.modes.compare.measure.compared_sides import BY_NORM, NOT_COMPARED
from pytest_msprobe.modes.compare.measure.float_dtypes import float_dtype
from pytest_msprobe.modes.compare.measure.histogram import error_histogram
from pytest_msprobe.modes.compare.measure.load import load, measure_pair, plain_pair
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, STATISTICS, DataMode, Row
from pytest_msprobe.results.skip_reasons import Skip

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from msprobe_hooks.dump.values import Value
    from pytest_msprobe.extensions.transformations.entries import Entry, Transformed
    from pytest_msprobe.modes.compare.measure.compared_sides import ComparedSides
    from pytest_msprobe.modes.compare.rows import Row


def transformed_row(
    found: tuple[Transformed | None, Transformed | None],
    row: Row,
    sides: ComparedSides,
    records: tuple[str, str],
    mode: DataMode,
) -> Row:
    """Return the measured row of a pair of tensors of which one is turned, as ``found`` says of target and golden.

    ``records`` are those of the target and the golden call. Where files were recorded, these are read whatever
    ``mode`` the caller compares by.
    """
    target, golden = row.target, row.golden
    assert target is not None
    assert golden is not None
    row = replace(row, transformed=tuple(each.words for each in found if each is not None))
    if sides.mode == "tensor" and target.data_name and golden.data_name:
        import_torch()

        return measure_transformed(row, sides, records, found)
    if sides.mode == "tensor" and (target.data_name or golden.data_name):
        message = f"{'golden' if target.data_name else 'target'} has no data file"
        return replace(row, unmeasured="no file", messages=(message,))
    return _by_statistics(row, found, mode)


def _by_statistics(row: Row, found: tuple[Transformed | None, ...], mode: DataMode) -> Row:
    kept = frozenset.intersection(ALL_KEPT, *(each.keeps for each in found if each is not None))
    words = "; ".join(row.transformed)
    if not kept or mode == "md5":
        return replace(row, outcome="skip", unmeasured="left out", messages=(f"{NOT_COMPARED}{words}",))
    values: list[Value] = []
    for value, transformed in zip((row.target, row.golden), found, strict=True):
        assert value is not None
        shape = value.shape
        for entry in transformed.entries if transformed is not None else ():
            try:
                for step in entry.steps:
                    shape = step.shape(shape)
            except StepError as error:
                return refused(row, entry, f"{error} ({value.name})")
        numbers = value.statistics and tuple(
            number if name in kept else None for name, number in zip(STATISTICS, value.statistics, strict=True)
        )
        values.append(replace(value, shape=shape, statistics=numbers))
    target, golden = values
    if target.shape != golden.shape:
        return refused_shapes(row, found, list(target.shape), list(golden.shape))
    row = replace(row, target=target, golden=golden)
    scaled = scaled_error(target, golden)
    if scaled is None:
        return replace(row, unmeasured="no value" if math.prod(target.shape) else "empty")
    notes = () if kept == ALL_KEPT else (f"{BY_NORM}{words}",)
    row = replace(row, metrics={**measure_statistics(target, golden), SCALED_ERROR: scaled}, messages=notes)
    return judged_as(row, found)


def refused(row: Row, entry: Entry, problem: str) -> Row:
    """Return a row that fails because an entry does not fit it."""
    return replace(row, outcome="fail", unmeasured="transform", messages=(f"{entry.place}: {problem}",))


def refused_shapes(row: Row, found: tuple[Transformed | None, ...], target: object, golden: object) -> Row:
    """Return a row that fails because the two sides have other shapes after their steps."""
    entry = next(each.entries[-1] for each in found if each is not None)
    return refused(row, entry, f"the target is {target} and golden is {golden} after it; correct the steps")


def judged_as(row: Row, found: tuple[Transformed | None, ...]) -> Row:
    """Return a row with both sides' floats of the dtype by whose limits an entry has them judged, where one does."""
    precision = next((each.precision for each in found if each is not None and each.precision), None)
    if precision is None:
        return row
    return replace(row, target=_as_dtype(row.target, precision), golden=_as_dtype(row.golden, precision))


def _as_dtype(value: Value | None, dtype: str) -> Value | None:
    return replace(value, dtype=f"torch.{dtype}") if value is not None and float_dtype(value.dtype) else value


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
