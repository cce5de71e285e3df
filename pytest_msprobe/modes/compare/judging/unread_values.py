"""Values that say nothing of a run (overwritten or undefined memory, undefined rows), and notes on them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from msprobe_hooks.dump.effects import UNDEFINED, Effects, ValidRows, effects_of_record, is_times_zero, valid_rows_of
from msprobe_hooks.dump.names import direction_of, split_called
from msprobe_hooks.dump.recording_paths import step_rank
from msprobe_hooks.errors import DumpError
from pytest_msprobe.engine.import_torch import import_torch
from pytest_msprobe.modes.compare.measure.compared_sides import BY_NORM, NOT_COMPARED
from pytest_msprobe.modes.compare.measure.own_metrics import PROBLEM
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, Row
from pytest_msprobe.results.outcomes import Skip

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    inputs = {row.place.removeprefix("input."): row for row in rows if row.group == "input"}
    groups, kind = inputs.get(valid.argument) or inputs.get(str(valid.at)), inputs.get(valid.kind)
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


# Why a value is left out: what its row says of it, and what the summary says of several.
_OVERWRITTEN = "not compared: the call does not read what this memory held"
_UNDEFINED = "not compared: the call leaves this memory as it was found"
_UNWRITTEN = "not compared: this memory was not written to yet, and the call does not compute with it"
#: What the summary says of values with these messages.
IN_SUMMARY = {
    _UNWRITTEN: "nothing was written to this memory yet",
    _OVERWRITTEN: "the call does not read what this memory held",
    _UNDEFINED: "the call leaves this memory as it was found",
    NO_VALUES: "rows behind the last group are undefined and the others have no numbers of their own",
}


def drop_unread(rows: list[Row], target: tuple[Dump, str], golden: tuple[Dump, str]) -> list[Row]:
    """Return the measured rows of two forward records, with those left out that differ in memory that says nothing.

    Shape and dtype of such memory are compared all the same.
    """
    if direction_of(target[1]) != "forward" or not any(map(_may_be_unread, rows)):
        return rows
    sides = [_Unread(effects_of_record(record), _noted(dump, record)) for dump, record in (target, golden)]
    ignored = _ignored(rows, (target, golden))
    return [_left_out(row, reason) if (reason := _reason(row, sides, ignored)) else row for row in rows]


class _Unread(NamedTuple):
    """Knowledge of a record's memory: what its call does, and the places that its recorder found undefined."""

    effects: Effects
    noted: tuple[str, ...]

    def is_unwritten(self, place: str) -> bool:
        """Return whether a value is undefined memory that was given to the call, or that it passes on."""
        if self.noted and place.startswith("output.") and self.effects.carries:
            return True
        return any(f"{place}.".startswith(f"{noted}.") for noted in self.noted)


def _noted(dump: Dump, record: str) -> tuple[str, ...]:
    body = dump.body(record)
    details = body.get("details") if isinstance(body, dict) else None
    if not isinstance(details, dict):
        return ()
    return tuple(key for key, fact in details.items() if isinstance(fact, dict) and fact.get("values") == UNDEFINED)


def _may_be_unread(row: Row) -> bool:
    return bool(row.metrics.get(SCALED_ERROR)) or row.unmeasured in ("no file", "unreadable")


def _reason(row: Row, sides: Sequence[_Unread], ignored: frozenset[str]) -> str:
    if not _may_be_unread(row) or row.target is None or row.golden is None or row.target.dtype != row.golden.dtype:
        return ""
    if all(side.is_unwritten(row.place) for side in sides):
        return _UNWRITTEN
    group, _, place = row.place.partition(".")
    position = place.partition(".")[0]
    if group == "input" and ({place, position} & ignored or any(side.effects.is_unread(position) for side in sides)):
        return _OVERWRITTEN
    return _UNDEFINED if group == "output" and any(side.effects.is_undefined(position) for side in sides) else ""


def _ignored(rows: Iterable[Row], sides: Sequence[tuple[Dump, str]]) -> frozenset[str]:
    """Return the arguments that others say are not read: what is received into, and what a beta of 0 multiplies."""
    texts = {row.place.partition(".")[2]: row.target.text for row in rows if row.group == "input" and row.target}
    apis = [split_called(record)[0] for _, record in sides]
    if all(is_times_zero(api, texts.get("beta")) for api in apis):
        return frozenset({"0", "input"})
    if apis == ["Distributed.broadcast"] * 2:
        source, ranks = texts.get("1", texts.get("src")), {str(step_rank(dump.path).rank) for dump, _ in sides}
        return frozenset({"0", "tensor"} if source and ranks.isdisjoint({"None", source}) else ())
    ends = (place.removesuffix("op") for place, text in texts.items() if place.endswith(".op") and text == "irecv")
    return frozenset(f"{end}tensor" for end in ends if apis == ["Distributed.batch_isend_irecv"] * 2)


def _left_out(row: Row, reason: str) -> Row:
    return replace(row, outcome="pass", metrics={}, unmeasured="left out", messages=(reason,), worst=None)


# One line for each in a summary: what was done to which value is in its row.
_OF_TRANSFORMATIONS = (NOT_COMPARED, BY_NORM)


def row_notes(rows: Iterable[Row]) -> list[tuple[str, str]]:
    """Return notes on values, in the words that follow their number, and the places of the values."""
    return [(note, row.place) for row in rows for text in row.messages if (note := _note(text))]


def _note(text: str) -> str:
    if text in IN_SUMMARY:
        return f"not compared ({IN_SUMMARY[text]})"
    if text.startswith(PROBLEM):
        return f"without metric {text.removeprefix(PROBLEM)}"
    return next((beginning.removesuffix(": ") for beginning in _OF_TRANSFORMATIONS if text.startswith(beginning)), "")
