"""Runs of MindSpore recorded by msprobe on one side and by this project's recorder on the other.

msprobe lists the gradients of a primitive from the last input to the first, computes one for an input that takes none,
and gives mean and norm of integers in 32 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from msprobe_hooks.dump.names import plain_dtype
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, Row

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from msprobe_hooks.dump.values import PlacedValue

_ROUNDED = ("mean_rel_diff", "norm_rel_diff")
_EXACT = ("max_diff", "min_diff")
# A few roundings to float32.
_ROUNDING = 2.0**-22


def use_different_recorders(target: Dump, golden: Dump) -> bool:
    """Return whether the recorders of two runs of MindSpore differ: msprobe's does not say what requires a gradient."""
    if not target.framework == golden.framework == "mindspore":
        return False
    says, golden_says = (any(b'"requires_grad"' in bytes(raw) for raw in x.records.values()) for x in (target, golden))
    return says != golden_says


def paired_gradients(
    record: str, target: list[PlacedValue], golden: list[PlacedValue]
) -> tuple[dict[str, PlacedValue | None], frozenset[str]]:
    """Return the golden gradient of each gradient of a backward call, and golden ones that only one recorder has."""
    ours, theirs = ([placed for placed in side if placed.group == "output"] for side in (target, golden))
    if len(ours) != len(theirs):
        return {}, frozenset()
    if record.startswith("Primitive."):
        theirs = theirs[::-1]
    pairs = [*zip(ours, theirs, strict=True)]
    named = {one.name: other if one.value.is_tensor == other.value.is_tensor else None for one, other in pairs}
    return named, frozenset(other.name for one, other in pairs if named[one.name] is None)


def with_rounded_integers(row: Row) -> Row:
    """Return a row without the error that rounding its mean and norm to float32 makes, if it is of integers."""
    if row.target is None or not plain_dtype(row.target.dtype).startswith(("int", "uint")):
        return row
    metrics = row.metrics
    is_rounding = all(metrics.get(name, 1) == 0 for name in _EXACT) and all(
        metrics.get(name, 1) <= _ROUNDING for name in _ROUNDED
    )
    return replace(row, metrics={**metrics, SCALED_ERROR: 0.0}) if is_rounding else row
