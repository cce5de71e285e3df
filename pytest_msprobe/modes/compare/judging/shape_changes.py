"""Runs that were given other shapes, as another batch size: one finding, and not one for each call after it."""

from __future__ import annotations

from msgspec.structs import replace

from msprobe_hooks.dump.names import is_forward
from pytest_msprobe.modes.compare.rows import ComparedCall, Row


def first_shape_change(call: ComparedCall) -> str:
    """Return how the shape of what a forward call was given differs, in words; empty where it does not.

    A call that is given no tensor, as ``arange``, has the shape that its arguments say. The same dimensions in another
    order are no other batch size but a transposition.
    """
    if not is_forward(call.record) or _was_given_the_same(call):
        return ""
    tensors = [row for row in call.rows if row.group == "input" and row.target and row.target.is_tensor]
    for row in tensors or call.rows:
        if row.unmeasured == "shape" and row.target and row.golden and not _is_transposed(row):
            return f"{call.record} {row.place} is {list(row.target.shape)} in place of {list(row.golden.shape)}"
    return ""


def shapes_sentence(first: ComparedCall) -> str:
    """Return the one sentence on runs whose first call that differs was given another shape."""
    return f"the runs had different input shapes: {first_shape_change(first)}; later differences may follow from it"


def may_be_consequence(call: ComparedCall, first: ComparedCall) -> bool:
    """Return whether what a wrong call differs by may follow from the other shape that the first one was given.

    A forward call that made another value of equal ones, or one of another shape, is wrong whatever the shapes are.
    """
    if call.order <= first.order:
        return False
    return call.cause == "inherited" or not is_forward(call.record) or has_other_shapes(call)


def has_other_shapes(call: ComparedCall) -> bool:
    """Return whether shapes of a call differ and may do so because of what it was given."""
    return not _was_given_the_same(call) and any(row.unmeasured == "shape" for row in call.rows)


def as_not_comparable(call: ComparedCall) -> ComparedCall:
    """Return the call as one that was not compared; its rows still say how they differ."""
    rows = tuple(replace(row, outcome="skip") if row.differs else row for row in call.rows)
    return replace(call, outcome="skip", cause="other shapes", rows=rows)


def _was_given_the_same(call: ComparedCall) -> bool:
    inputs = [row for row in call.rows if row.group in ("input", "parameters")]
    return bool(inputs) and all(row.outcome == "pass" for row in inputs)


def _is_transposed(row: Row) -> bool:
    assert row.target is not None
    assert row.golden is not None
    return sorted(row.target.shape) == sorted(row.golden.shape)
