"""Comparison of recorded statistics after transformations, and of tensors where files were recorded."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_msprobe.engine.import_torch import import_torch
from pytest_msprobe.extensions.transformations.step import ALL_KEPT, StepError
from pytest_msprobe.extensions.transformations.transformed_rows import judged_as, refused, refused_shapes
from pytest_msprobe.modes.compare.measure.call_values import measure_statistics, scaled_error
from pytest_msprobe.modes.compare.measure.compared_sides import BY_NORM, NOT_COMPARED
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, STATISTICS, DataMode, Row

if TYPE_CHECKING:
    from msprobe_hooks.dump.values import Value
    from pytest_msprobe.extensions.transformations.entries import Transformed
    from pytest_msprobe.modes.compare.measure.compared_sides import ComparedSides


def transformed_row(
    transformed: tuple[Transformed | None, Transformed | None],
    row: Row,
    sides: ComparedSides,
    records: tuple[str, str],
    mode: DataMode,
) -> Row:
    """Return the measured row of a pair of tensors of which one is turned, as ``transformed`` says.

    ``records`` are those of the target and the golden call. Where files were recorded, these are read whatever
    ``mode`` the caller compares by.
    """
    target, golden = row.target, row.golden
    assert target is not None
    assert golden is not None
    row = replace(row, transformed=tuple(side.words for side in transformed if side is not None))
    if sides.mode == "tensor" and target.data_name and golden.data_name:
        import_torch()
        from pytest_msprobe.extensions.transformations.transformed_tensors import measure_transformed

        return measure_transformed(row, sides, records, transformed)
    if sides.mode == "tensor" and (target.data_name or golden.data_name):
        message = f"{'golden' if target.data_name else 'target'} has no data file"
        return replace(row, unmeasured="no file", messages=(message,))
    return _by_statistics(row, transformed, mode)


def _by_statistics(row: Row, both: tuple[Transformed | None, ...], mode: DataMode) -> Row:
    invariant = frozenset.intersection(ALL_KEPT, *(side.keeps for side in both if side is not None))
    words = "; ".join(row.transformed)
    if not invariant or mode == "md5":
        return replace(row, outcome="skip", unmeasured="left out", messages=(f"{NOT_COMPARED}{words}",))
    values: list[Value] = []
    for value, transformed in zip((row.target, row.golden), both, strict=True):
        assert value is not None
        shape = value.shape
        for entry in transformed.entries if transformed is not None else ():
            try:
                for step in entry.steps:
                    shape = step.shape(shape)
            except StepError as error:
                return refused(row, entry, f"{error} ({value.name})")
        numbers = value.statistics and tuple(
            number if name in invariant else None for name, number in zip(STATISTICS, value.statistics, strict=True)
        )
        values.append(replace(value, shape=shape, statistics=numbers))
    target, golden = values
    if target.shape != golden.shape:
        return refused_shapes(row, both, list(target.shape), list(golden.shape))
    row = replace(row, target=target, golden=golden)
    scaled = scaled_error(target, golden)
    if scaled is None:
        return replace(row, unmeasured="no value" if math.prod(target.shape) else "empty")
    notes = () if invariant == ALL_KEPT else (f"{BY_NORM}{words}",)
    row = replace(row, metrics={**measure_statistics(target, golden), SCALED_ERROR: scaled}, messages=notes)
    return judged_as(row, both)
