"""Values that say nothing of a run: memory that a call overwrites, and memory that it leaves as it was found."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from msprobe_hooks.dump.names import direction_of
from msprobe_hooks.dump.paths.recording import step_rank
from msprobe_hooks.dump.unread.effects import UNDEFINED, Effects, effects_of_record
from pytest_msprobe.modes.compare.judging.defined_rows import NO_VALUES
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from msprobe_hooks.dump.reader import Dump

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
_BROADCAST = ("0", "tensor")


def drop_unread(rows: list[Row], target: tuple[Dump, str], golden: tuple[Dump, str]) -> list[Row]:
    """Return the measured rows of two forward records, with those left out that differ in memory that says nothing.

    Shape and dtype of such memory are compared all the same.
    """
    if direction_of(target[1]) != "forward" or not any(map(_may_be_unread, rows)):
        return rows
    sides = [_Unread(effects_of_record(record), _noted(dump, record)) for dump, record in (target, golden)]
    received = _is_received(rows, (target, golden))
    return [_left_out(row, reason) if (reason := _reason(row, sides, received=received)) else row for row in rows]


class _Unread(NamedTuple):
    """What is known of a record's memory: what its call does, and the places that its recorder found undefined."""

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


def _reason(row: Row, sides: Sequence[_Unread], *, received: bool) -> str:
    if not _may_be_unread(row) or row.target is None or row.golden is None or row.target.dtype != row.golden.dtype:
        return ""
    if all(side.is_unwritten(row.place) for side in sides):
        return _UNWRITTEN
    group, _, position = row.place.partition(".")
    position = position.partition(".")[0]
    if group == "input" and (
        (received and position in _BROADCAST) or any(side.effects.is_unread(position) for side in sides)
    ):
        return _OVERWRITTEN
    return _UNDEFINED if group == "output" and any(side.effects.is_undefined(position) for side in sides) else ""


def _is_received(rows: Iterable[Row], sides: Iterable[tuple[Dump, str]]) -> bool:
    """Return whether both records are broadcasts of another rank's values."""
    if any(not record.startswith("Distributed.broadcast.") for _, record in sides):
        return False
    source = next((row.target for row in rows if row.place in ("input.1", "input.src")), None)
    ranks = [step_rank(dump.path).rank for dump, _ in sides]
    return source is not None and all(rank is not None and source.text != str(rank) for rank in ranks)


def _left_out(row: Row, reason: str) -> Row:
    return replace(row, outcome="pass", metrics={}, unmeasured="left out", messages=(reason,), worst=None)
