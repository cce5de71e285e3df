"""Rows that an entry of a transformation fails or judges by another dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_msprobe.modes.compare.measure.float_dtypes import float_dtype

if TYPE_CHECKING:
    from msprobe_hooks.dump.values import Value
    from pytest_msprobe.extensions.transformations.entries import Entry, Transformed
    from pytest_msprobe.modes.compare.rows import Row


def refused(row: Row, entry: Entry, problem: str) -> Row:
    """Return a row that fails because an entry does not fit it."""
    return replace(row, outcome="fail", unmeasured="transform", messages=(f"{entry.place}: {problem}",))


def refused_shapes(row: Row, transformed: tuple[Transformed | None, ...], target: object, golden: object) -> Row:
    """Return a row that fails because the two sides have other shapes after their steps."""
    entry = next(side.entries[-1] for side in transformed if side is not None)
    return refused(row, entry, f"the target is {target} and golden is {golden} after it; correct the steps")


def judged_as(row: Row, transformed: tuple[Transformed | None, ...]) -> Row:
    """Return a row with both sides' floats of the dtype by whose limits an entry has them judged, where one does."""
    precision = next((side.precision for side in transformed if side is not None and side.precision), None)
    if precision is None:
        return row
    return replace(row, target=_as_dtype(row.target, precision), golden=_as_dtype(row.golden, precision))


def _as_dtype(value: Value | None, dtype: str) -> Value | None:
    return replace(value, dtype=f"torch.{dtype}") if value is not None and float_dtype(value.dtype) else value
