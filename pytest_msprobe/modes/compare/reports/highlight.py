"""Which rows of a table are coloured: what failed or warned, and msprobe's rules on how errors grow through a call.

The rules are those of msprobe 1.2 (``compare``, highlighting), with signs put right: magnitudes are compared, and a
row that is red is not looked at again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, TypeAlias

from pytest_msprobe.modes.compare.rows import ComparedCall, DataMode, Row

Colour: TypeAlias = Literal["", "yellow", "red"]

# msprobe's: a row with a greater difference is red.
_HUGE = 1e10


def colours(call: ComparedCall) -> list[Colour]:
    """Return the colour of each row of a call; red wins over yellow."""
    given = [row for row in call.rows if row.group in ("input", "parameters") and _is_measured(row, call.mode)]
    return [_colour(row, given, call.mode) for row in call.rows]


def _colour(row: Row, given: list[Row], mode: DataMode) -> Colour:
    if row.outcome == "fail" or _is_alarming(row, mode):
        return "red"
    grown = set(_grown(row, given, mode)) if row.group == "output" and _is_measured(row, mode) else set()
    if "red" in grown:
        return "red"
    return "yellow" if row.outcome == "warn" or grown else ""


def _is_alarming(row: Row, mode: DataMode) -> bool:
    if mode == "md5" or row.target is None or not row.target.is_tensor or row.target.statistics is None:
        return False
    most, least = row.target.statistics[:2]
    if any(value is not None and not math.isfinite(value) for value in (most, least)):
        return True
    return abs(_error(row, mode) or 0.0) > _HUGE


def _is_measured(row: Row, mode: DataMode) -> bool:
    both = row.target, row.golden
    return mode != "md5" and _error(row, mode) is not None and all(one and one.statistics for one in both)


def _error(row: Row, mode: DataMode) -> float | None:
    return row.metrics.get("max_abs_err" if mode == "tensor" else "max_diff")


def _grown(row: Row, given: list[Row], mode: DataMode) -> Iterator[Colour]:
    for before in given:
        error, earlier = abs(_error(row, mode) or 0.0), abs(_error(before, mode) or 0.0)
        if earlier <= error and _order(error) - _order(earlier) >= 1:
            yield "yellow"
        if mode == "tensor":
            yield from _tensor_rules(before, row)
        else:
            yield from _statistics_rules(before, row)


def _tensor_rules(before: Row, row: Row) -> Iterator[Colour]:
    ratio_in, ratio_out = before.metrics.get("rel_err_thousandth"), row.metrics.get("rel_err_thousandth")
    if ratio_in is not None and ratio_out is not None:
        if ratio_in > 0.9 and ratio_out < 0.6:
            yield "red"
        elif ratio_in - ratio_out > 0.1:
            yield "yellow"
    cosine_in, cosine_out = before.metrics.get("cosine_sim"), row.metrics.get("cosine_sim")
    if cosine_in is not None and cosine_out is not None and cosine_in - cosine_out > 0.1:
        yield "yellow"


def _statistics_rules(before: Row, row: Row) -> Iterator[Colour]:
    relative_in, relative_out = before.metrics.get("max_rel_diff", 0.0), row.metrics.get("max_rel_diff", 0.0)
    if relative_out > 0.5:
        yield "red"
    elif relative_out > 0.1 and relative_in < 0.01:
        yield "yellow"


def _order(error: float) -> float:
    return math.log10(error) if math.isfinite(error) and error >= 1 else 0.0 if error < 1 else math.inf
