"""Results of which some rows are defined alone: the others, behind the last group, are left out of a comparison."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec.structs import replace

from msprobe_hooks.dump.names import direction_of, split_called
from msprobe_hooks.dump.unread.effects import ValidRows, valid_rows_of
from msprobe_hooks.errors import DumpError
from pytest_msprobe.engine.import_torch import import_torch
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, Row
from pytest_msprobe.results.skip_reasons import Skip

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from msprobe_hooks.dump.values import Value
    from pytest_msprobe.modes.compare.measure.compared_sides import ComparedSides

#: What a row says that has no numbers of the rows that count.
NO_VALUES = "not compared: rows behind the last group are undefined, and the others have no numbers of their own"


def measure_defined_rows(rows: list[Row], sides: ComparedSides, target: str) -> list[Row]:
    """Return the measured rows of a call of the target, with results that differ measured by rows of a group.

    Where only statistics of all of them were recorded, they are left out.
    """
    valid = valid_rows_of(split_called(target)[0].rpartition(".")[2])
    if valid is None or direction_of(target) != "forward":
        return rows
    given = {row.place.removeprefix("input."): row for row in rows if row.group == "input"}
    groups, kind = given.get(valid.argument) or given.get(str(valid.at)), given.get(valid.kind)
    if groups is None or groups.target is None:
        return rows
    count = _count(
        valid, groups.target, sides.target, kind is not None and kind.target is not None and kind.target.text
    )
    return rows if count is None else [_measured(row, count, sides) for row in rows]


def _count(valid: ValidRows, groups: Value, dump: Dump, kind: object) -> int | None:
    """Return how many rows belong to a group, None where that is not known."""
    is_kind = 1 if kind == "1" else 0
    if groups.data_name:
        import_torch()
        from pytest_msprobe.modes.compare.measure.load import load

        try:
            return valid.count([int(number) for number in load(groups, dump)], is_kind)
        except (DumpError, Skip):
            return None
    if groups.statistics is None or len(groups.shape) != 1:
        return None
    greatest, _, mean, _ = groups.statistics
    if valid.count([1, 1], is_kind) == 1:
        return None if greatest is None or not math.isfinite(greatest) else int(greatest)
    return None if mean is None or not math.isfinite(mean) else round(mean * groups.shape[0])


def _measured(row: Row, count: int, sides: ComparedSides) -> Row:
    mine, other = row.target, row.golden
    if row.transformed:
        return row
    if row.group != "output" or mine is None or other is None or mine.shape != other.shape or mine.dtype != other.dtype:
        return row
    if not row.metrics.get(SCALED_ERROR) or not mine.shape or not 0 <= count < mine.shape[0]:
        return row
    if not (mine.data_name and other.data_name):
        return replace(row, outcome="pass", metrics={}, unmeasured="left out", messages=(NO_VALUES,), worst=None)
    from pytest_msprobe.modes.compare.measure.load import measure_files

    measured = measure_files(row, sides.target, sides.golden, sides.metrics, first=count)
    note = f"{count} of {mine.shape[0]} rows compared: the others belong to no group"
    return replace(measured, messages=(*measured.messages, note))
