"""Sums and gradients that cancel: results small against their terms, judged by the scale of the terms.

Two runs whose terms differ by what their dtype makes likely may have results that share no digit. How far these may be
apart follows from the terms, where they are recorded: a kernel of a graph records them, a forward call, and a backward
call together with its forward one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from msprobe_hooks.dump.names import (
    coarser,
    float_dtype,
    is_backward_api,
    is_forward,
    is_module_name,
    is_parameters_grad,
    split_called,
    split_module,
)
from msprobe_hooks.dump.values import Value, read_values
from pytest_msprobe.modes.compare.judging.gradient_scales import gradient_scale
from pytest_msprobe.modes.compare.judging.term_scales import (
    UNIT_ROUNDOFF,
    PlacedValues,
    ScaleOf,
    forward_scale,
    size_of,
)
from pytest_msprobe.modes.compare.rows import EXPLAINED_ERROR, SCALED_ERROR, TERMS_ERROR, Row

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump

_RESULTS = ("output", "parameters_grad")
#: How many roundings of its terms a sum may be off by, times the root of their number; kernels add a few before.
#: Measured: torch's sums of up to 65 536 terms 1.5, products of 4 096 terms 4.5, 256 sums in a row in bfloat16 2.3.
ROUNDINGS = 8.0
MESSAGE = "a sum that cancels: no further apart than its terms explain"
#: Of a gradient that is zero in mathematics.
ROUNDING_ALONE = "a sum that cancels: no larger on either side than the rounding of its terms"


@dataclass(frozen=True, slots=True)
class Terms:
    """The measured rows of what a call added up, by place (see `gradient_scales.ARRIVED`).

    Those that are not ``its_own``, but of a module around, measure and do not excuse.
    """

    rows: Mapping[str, Row]
    its_own: bool = True

    @property
    def sides(self) -> tuple[PlacedValues, PlacedValues]:
        """The values of both sides, by place."""
        return (
            {place: row.target for place, row in self.rows.items() if row.target is not None},
            {place: row.golden for place, row in self.rows.items() if row.golden is not None},
        )

    @property
    def error(self) -> float:
        """The largest scaled error of a tensor."""
        tensors = (row for row in self.rows.values() if row.target is not None and row.target.is_tensor)
        return max((row.metrics.get(SCALED_ERROR, math.inf) for row in tensors), default=math.inf)


def judged_by_terms(
    rows: list[Row], record: str, terms: Callable[[], Terms], *, usual: Callable[[str], float], inherited: float
) -> list[Row]:
    """Return judged rows of a call with those results that cancel judged by its terms, and measured by them otherwise.

    ``usual`` gives the error that is usual for a dtype; beyond the rounding of the sum, a result may be ``inherited``
    times as wrong as the terms.
    """
    wrong = [row for row in rows if row.differs and row.group in _RESULTS and row.metrics.get(SCALED_ERROR)]
    scale_of = _scale_of(record) if wrong else None
    if scale_of is None:
        return rows
    added = terms()
    sides = added.sides
    measured = [(row, error) for row in wrong if (error := _measured(row, scale_of, sides)) is not None]
    limit = added.error * inherited
    judged = {}
    for row, error in measured:
        explained = min(usual(error.dtype), max(error.rounding, limit))
        if added.its_own and error.share <= explained:
            judged[id(row)] = excused(row, explained * error.ratio)
        else:
            judged[id(row)] = replace(row, metrics={**row.metrics, TERMS_ERROR: error.share})
    return [judged.get(id(row), row) for row in rows]


@dataclass(frozen=True, slots=True)
class _Error:
    """Distance of a result as a share of its terms, and the share of them that rounding explains.

    ``ratio`` is how many times larger the terms are.
    """

    share: float
    rounding: float
    ratio: float
    dtype: str


def _scale_of(record: str) -> ScaleOf | None:
    if is_forward(record) or split_called(record)[0].startswith("Kernel."):
        return forward_scale(record)
    return gradient_scale(record)


def _measured(row: Row, scale_of: ScaleOf, sides: tuple[PlacedValues, PlacedValues]) -> _Error | None:
    target, golden = row.target, row.golden
    if target is None or golden is None or row.unmeasured:
        return None
    own, other = float_dtype(target.dtype), float_dtype(golden.dtype)
    if own is None or other is None or (dtype := coarser(own, other)) not in UNIT_ROUNDOFF:
        return None
    scales = [scale_of(row.place, value, values) for value, values in zip((target, golden), sides, strict=True)]
    recorded = [scale for scale in scales if scale is not None]
    apart, sizes = distance(row), (size_of(target), size_of(golden))
    if len(recorded) < len(scales) or apart is None or sizes[0] is None or sizes[1] is None:
        return None
    largest, norm = min(scale.largest for scale in recorded), min(scale.norm for scale in recorded)
    if not largest or not norm:
        return None
    own_largest, own_norm = max(size.largest for size in sizes if size), max(size.norm for size in sizes if size)
    return _Error(
        share=max(apart[0] / largest, apart[1] / norm),
        rounding=ROUNDINGS * UNIT_ROUNDOFF[dtype] * math.sqrt(max(scale.terms for scale in recorded)),
        ratio=max(largest / own_largest if own_largest else math.inf, norm / own_norm if own_norm else math.inf),
        dtype=dtype,
    )


def distance(row: Row) -> tuple[float, float] | None:
    """Return how far two tensors are apart, of one element and of the norm; None where it was not recorded."""
    values = [value.statistics for value in (row.target, row.golden) if value is not None]
    numbers = [[float(x) for x in column if x is not None] for column in values if column is not None]
    if [len(column) for column in numbers] != [4, 4] or not all(math.isfinite(x) for column in numbers for x in column):
        return None
    apart = [abs(a - b) for a, b in zip(*numbers, strict=True)]
    return max(*apart[:3], row.metrics.get("max_abs_err", 0.0)), max(apart[3], row.metrics.get("euclidean", 0.0))


def is_cancelled(row: Row) -> bool:
    """Return whether a value is excused because of a sum that cancels."""
    return row.messages in ((MESSAGE,), (ROUNDING_ALONE,))


def has_cancelled(rows: Iterable[Row]) -> bool:
    """Return whether a value of a call is excused because of a sum that cancels."""
    return any(map(is_cancelled, rows))


def excused(row: Row, explained: float = 0.0) -> Row:
    """Return a row that passes, because it cancels; ``explained`` is how far it may be apart of its own scale."""
    metrics = {**row.metrics, EXPLAINED_ERROR: explained} if explained else row.metrics
    return replace(row, outcome="pass", messages=(MESSAGE,), metrics=metrics)


# A sum of n rounded terms is off by sqrt(n) roundings of their norm where they are random; kernels add a few before.
# With 4, the gradient of a bias before a batch normalization of 32 rows would be no rounding.
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
    arrival = arrival_of(dump, record)
    name = split_module(record)
    path = name.path
    while not arrival and path:
        path = path.rpartition(".")[0]
        # The class of the module around is not known.
        start = f"{name.type}.{path}." if path else f"{name.type}."
        backward = (x for x in dump.records if x.startswith(start) and is_module_name(x) and ".backward" in x)
        arrival = next((x for x in backward if split_module(x).path == path), "")
    return arrival


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
