"""What to look at first, for a call whose error begins there."""

from __future__ import annotations

from msprobe_hooks.dump.names import is_forward
from pytest_msprobe.modes.compare.other_shapes import given_shape
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, ComparedCall, Row

_VARYING = ("conv2d", "conv3d", "matmul", "nll_loss", "layer_norm", "lstm")


def advice(call: ComparedCall, row: Row) -> str:
    """Return advice for the deciding row of a wrong call."""
    if call.cause == "inherited":
        return (
            "This error was inherited from what the call was given, or arose inside: see the summary's first culprit."
        )
    if row.group == "saved":
        return "It was saved by name, and nothing tells what it was computed of: look at what was saved before it."
    if given_shape(call):
        return "The runs were given other shapes here: record both with the same batch size and sequence length."
    forward = is_forward(call.record)
    if row.group in ("input", "parameters"):
        text = (
            "The difference comes in with this value and no call before it differs: follow it to where it was made. It "
            "may be other data or weights, an operation in place, or memory overwritten by something else."
            if forward
            else "The gradient arrives wrong: check the forward results first, the loss among them."
        )
    else:
        differing = [row for row in call.rows if row.group in ("input", "parameters") and row.metrics.get(SCALED_ERROR)]
        entering = f" Its {', '.join(row.place for row in differing)} differs too." if differing else ""
        where = "forward" if forward else "backward"
        text = f"The error begins here: check the {where} computation of this call.{entering}"
    if row.group == "output" and any(word in call.record.lower() for word in _VARYING):
        text += " Kernels of this kind may sum in a varying order: turn on deterministic mode and record again."
    return text
