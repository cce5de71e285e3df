"""Required metrics of a policy: ``own_metric <= 0.1``, whatever its rule says of the value."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from msprobe_standards.validation import shown
from pytest_msprobe.errors import unknown
from pytest_msprobe.modes.compare.measure.own_metrics import BUILT_IN_METRICS
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, STATISTICS_METRICS, TENSOR_METRICS, Cause, DataMode, Row

_FORM = re.compile(r"\s*(\w+)\s*(<=|>=|<|>)\s*(\S+)\s*")
_HOLDS: Final[dict[str, Callable[[float, float], bool]]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_MEASURED: Final[dict[DataMode, Collection[str]]] = {
    "tensor": {SCALED_ERROR, *TENSOR_METRICS},
    "statistics": {SCALED_ERROR, *STATISTICS_METRICS},
    "md5": {SCALED_ERROR},
    "structure": (),
}


@dataclass(frozen=True)
class RequiredMetric:
    """A metric that must be above or below a number wherever it is measured."""

    metric: str
    relation: str
    limit: float

    @property
    def text(self) -> str:
        """The requirement as a policy spells it."""
        return f"{self.metric} {self.relation} {self.limit:g}"

    def judge(self, row: Row) -> Row:
        """Return a row, failed where it has the metric and that is not as required; NaN never is."""
        value = row.metrics.get(self.metric)
        if value is None or _HOLDS[self.relation](value, self.limit):
            return row
        number = "NaN" if math.isnan(value) else f"{value:.6g}"
        return replace(row, outcome="fail", messages=(*row.messages, f"{self.metric} {number}, required {self.text}"))

    def is_measured(self, mode: DataMode) -> bool:
        """Return whether values of dumps that are compared by this mode have the metric."""
        return self.metric in _MEASURED[mode] or (mode == "tensor" and self.metric not in BUILT_IN_METRICS)


def cause_of_required(rows: Iterable[Row]) -> Cause:
    """Return the cause of a call that fails by a required metric alone: inherited where its inputs fail, too."""
    has_entered = any(row.outcome == "fail" and row.group in ("input", "parameters") for row in rows)
    return "inherited" if has_entered else "culprit"


def read_required(written: object, own: Iterable[str]) -> tuple[RequiredMetric, ...]:
    """Return what the key ``require`` of a policy holds; ``own`` are the names of the user's metrics.

    Raises ValueError that says what is wrong.
    """
    if not isinstance(written, list):
        raise ValueError(f"{shown(written)} (allowed: a list of requirements, such as own_metric <= 0.1)")
    names = sorted(BUILT_IN_METRICS | {*own})
    return tuple(_required(requirement, names) for requirement in written)


def _required(written: object, names: Sequence[str]) -> RequiredMetric:
    match = _FORM.fullmatch(written) if isinstance(written, str) else None
    try:
        limit = float(match[3]) if match else math.nan
    except ValueError:
        limit = math.nan
    if match is None or math.isnan(limit):
        raise ValueError(f"{shown(written)} (allowed: a metric, one of <= >= < >, and a number)")
    if match[1] not in names:
        raise ValueError(
            f"{unknown('metric', match[1], names)}; register your own by pytest_msprobe_register_compare_metrics"
        )
    return RequiredMetric(match[1], match[2], limit)
