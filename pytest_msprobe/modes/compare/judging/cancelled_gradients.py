"""Gradients that cancel: where what arrives sums to nothing, both runs hold rounding alone.

A bias before a normalisation, or that of the keys before a softmax, has no effect; its gradient is zero in mathematics
and any rounding of the sum is as right as another. The call's inputs show how large that rounding may be.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from msprobe_hooks.dump.names import is_backward_api, is_module_name, is_parameters_grad, split_called, split_module
from msprobe_hooks.dump.values import Value, read_values
from pytest_msprobe.modes.compare.judging.cancelled_sums import ROUNDING_ALONE
from pytest_msprobe.modes.compare.judging.term_scales import UNIT_ROUNDOFF
from pytest_msprobe.modes.compare.measure.float_dtypes import float_dtype

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.modes.compare.rows import Row

# A sum of n rounded terms is off by sqrt(n) roundings of their norm where they are random; kernels add a few before.
_FACTOR = 8.0


def drop_cancelled_gradients(rows: list[Row], target: tuple[Dump, str], golden: tuple[Dump, str]) -> list[Row]:
    """Return the judged rows of a backward record, or of parameters' gradients, with those excused that cancel.

    Only vectors are: sums over all that arrived, as the gradients of biases are.
    """
    wrong = [row for row in rows if row.differs and not row.unmeasured]
    if not wrong or not (is_backward_api(target[1]) or is_parameters_grad(target[1])):
        return rows
    arriving, golden_arriving = (_arriving(*side) for side in (target, golden))
    # Where one run does not say what arrived, as a static graph, it is what arrived in the other one.
    arriving, golden_arriving = arriving or golden_arriving, golden_arriving or arriving
    return [
        replace(row, outcome="pass", messages=(ROUNDING_ALONE,))
        if row in wrong and _cancels(row.target, arriving) and _cancels(row.golden, golden_arriving)
        else row
        for row in rows
    ]


def arrival_of(dump: Dump, record: str) -> str:
    """Return the record that holds what arrived at a backward call, or at the module of parameters; empty for none."""
    if not is_parameters_grad(record):
        return record
    called, rest = split_called(record)
    start = f"{called}.backward."
    numbered = f"{start}{rest.rpartition('.')[2]}"
    # The number of the gradients may count on from step to step.
    return numbered if numbered in dump.records else next((x for x in dump.records if x.startswith(start)), "")


def arrival_around(dump: Dump, record: str) -> str:
    """Return `arrival_of` a record, or of the nearest module around one that read its parameters without a call."""
    found = arrival_of(dump, record)
    name = split_module(record)
    path = name.path
    while not found and path:
        path = path.rpartition(".")[0]
        # The class of the module around is not known.
        start = f"{name.type}.{path}." if path else f"{name.type}."
        backward = (x for x in dump.records if x.startswith(start) and is_module_name(x) and ".backward" in x)
        found = next((x for x in backward if split_module(x).path == path), "")
    return found


def _arriving(dump: Dump, record: str) -> list[Value]:
    arrival = arrival_of(dump, record)
    if not arrival:
        return []
    return [x.value for x in read_values(dump, arrival) if x.group == "input" and x.value.is_tensor]


def _cancels(gradient: Value | None, arriving: Iterable[Value]) -> bool:
    if gradient is None or len(gradient.shape) != 1:
        return False
    unit, norm = UNIT_ROUNDOFF.get(float_dtype(gradient.dtype) or ""), _norm(gradient)
    if unit is None or norm is None:
        return False
    return any(
        (arrived_norm := _norm(arrived)) is not None
        and norm <= _FACTOR * unit * math.sqrt(math.prod(arrived.shape) / max(gradient.shape[0], 1)) * arrived_norm
        for arrived in arriving
    )


def _norm(value: Value) -> float | None:
    norm = value.statistics[3] if value.statistics is not None else None
    return float(norm) if norm is not None and math.isfinite(norm) else None
