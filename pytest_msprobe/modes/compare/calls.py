"""One matched call compared: its values side by side, measured and judged, and whether its error is its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from pytest_msprobe.engine.loading import import_torch
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, Cause, DataMode, Outcome, Row, Unmeasured, Value
from pytest_msprobe.modes.compare.rules import worse
from pytest_msprobe.modes.compare.statistics import measure_statistics, scaled_error
from pytest_msprobe.modes.compare.values import Placed, read_values

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.modes.compare.policy import ComparePolicy

_ORDER = {"input": 0, "parameters": 1, "output": 2, "parameters_grad": 3}
# Kinds of plain values that name a place, which differs from machine to machine.
_PLACES = frozenset({"torch.device", "torch.ProcessGroup", "torch.Generator", "torch.distributed.ProcessGroup"})
_SAME = {SCALED_ERROR: 0.0}
_DIFFERENT = {SCALED_ERROR: math.inf}


def pair_values(ours: list[Placed], theirs: list[Placed]) -> list[tuple[Placed | None, Placed | None]]:
    """Pair the values of two calls by group and place, what is left over of a group in order; in the rows' order."""
    if [placed[:2] for placed in ours] == [placed[:2] for placed in theirs]:
        return [*zip(ours, theirs, strict=True)]
    by_place = {placed[:2]: placed for placed in theirs}
    pairs = [(placed, by_place.pop(placed[:2], None)) for placed in ours]
    lonely = [*by_place.values()]
    paired: list[tuple[Placed | None, Placed | None]] = []
    for mine, other in pairs:
        if other is None:
            # An argument that one side passed by position and the other by name.
            found = next((placed for placed in lonely if placed[0] == mine[0] == "input"), None)
            if found is not None:
                lonely.remove(found)
                other = found
        paired.append((mine, other))
    paired += [(None, placed) for placed in lonely]
    return sorted(paired, key=lambda pair: _ORDER[(pair[0] or pair[1])[0]])  # type: ignore[index]


def compare_values(
    target: Dump,
    ours: str,
    golden: Dump,
    theirs: str,
    mode: DataMode,
    named: Mapping[str, Placed | None],
    dropped: Collection[str] = (),
) -> list[Row]:
    """Measure the values of two records side by side; outcomes are left to a policy.

    ``named`` gives the golden values that a user named for values of the target, by full name, None for none;
    ``dropped`` are golden values, by full name, that a user left out. Raises RecordError where a record is malformed.
    """
    mine, other = read_values(target, ours), read_values(golden, theirs)
    if not named and not dropped:
        return [_row(a, b, target, golden, mode) for a, b in pair_values(mine, other)]
    used = {value[2].name for value in named.values() if value is not None} | {*dropped}
    rest = [placed for placed in mine if placed[2].name not in named]
    rows = [
        _row(placed, found, target, golden, mode) if (found := named[placed[2].name]) else _left_out(placed, None)
        for placed in mine
        if placed[2].name in named
    ]
    rows += [
        _row(a, b, target, golden, mode)
        for a, b in pair_values(rest, [placed for placed in other if placed[2].name not in used])
    ]
    rows += [_left_out(None, placed) for placed in other if placed[2].name in dropped]
    return sorted(rows, key=lambda row: _ORDER[row.group])


def _left_out(ours: Placed | None, theirs: Placed | None) -> Row:
    group, place, _ = ours or theirs  # type: ignore[misc]
    message = "it has no partner, by a mapping or because the frameworks differ"
    return Row(group, place, ours and ours[2], theirs and theirs[2], "skip", {}, "left out", (message,))


def _row(a: Placed | None, b: Placed | None, target: Dump, golden: Dump, mode: DataMode) -> Row:
    group, place, _ = a or b  # type: ignore[misc]
    ours, theirs = a and a[2], b and b[2]
    if ours is None or theirs is None:
        return Row(group, place, ours, theirs, "pass", {}, "unmatched")
    unmeasured = _unmeasured(ours, theirs)
    if unmeasured:
        return Row(group, place, ours, theirs, "pass", {}, unmeasured)
    if not ours.is_tensor:
        return Row(group, place, ours, theirs, "pass", _measure_plain(ours, theirs))
    if mode == "tensor" and ours.data_name and theirs.data_name:
        return _measure_files()(Row(group, place, ours, theirs, "pass"), target, golden)
    if mode == "tensor" and (ours.data_name or theirs.data_name):
        message = f"{'golden' if ours.data_name else 'target'} has no data file"
        return Row(group, place, ours, theirs, "pass", {}, "no file", (message,))
    if mode == "md5" and ours.checksum and theirs.checksum:
        return Row(group, place, ours, theirs, "pass", _SAME if ours.checksum == theirs.checksum else _DIFFERENT)
    return _statistics_row(group, place, ours, theirs)


@cache
def _measure_files() -> Callable[[Row, Dump, Dump], Row]:
    """Return what measures files, imported when the first one is met: it needs torch."""
    import_torch()
    from pytest_msprobe.modes.compare.files import measure_files

    return measure_files


def _statistics_row(group: str, place: str, ours: Value, theirs: Value) -> Row:
    metrics = measure_statistics(ours, theirs)
    error = scaled_error(ours, theirs)
    if error is None:
        nothing = not math.prod(ours.shape)
        return Row(group, place, ours, theirs, "pass", {}, "empty" if nothing else "no value")  # type: ignore[arg-type]
    return Row(group, place, ours, theirs, "pass", {**metrics, SCALED_ERROR: error})  # type: ignore[arg-type]


def _unmeasured(ours: Value, theirs: Value) -> Unmeasured:
    if ours.is_tensor != theirs.is_tensor:
        return "kind"
    if ours.shape != theirs.shape:
        return "shape"
    return ""


def _measure_plain(ours: Value, theirs: Value) -> dict[str, float]:
    if ours.text == theirs.text and ours.type == theirs.type:
        return {**measure_statistics(ours, theirs), **_SAME}
    if ours.type == theirs.type and ours.type in _PLACES:
        return _SAME
    if ours.statistics is not None and theirs.statistics is not None:
        a, b = ours.statistics[0], theirs.statistics[0]
        if a == b or (a != a and b != b):
            return {**measure_statistics(ours, theirs), **_SAME}
        error = scaled_error(ours, theirs)
        return {**measure_statistics(ours, theirs), SCALED_ERROR: math.inf if error is None else error}
    return _DIFFERENT


def outcome_of(rows: Iterable[Row]) -> Outcome:
    """Return the worst outcome of the rows, skip where none was measured."""
    outcome: Outcome = "skip"
    for row in rows:
        outcome = worse(outcome, row.outcome)
    return outcome


def cause_of(rows: Iterable[Row], policy: ComparePolicy) -> Cause:
    """Tell whether a wrong call's outputs are worse than what its inputs explain."""
    given = made = 0.0
    for row in rows:
        if row.group == "parameters_grad":
            # What went into these sums is in no record of its own.
            return "inherited"
        error = row.metrics.get(SCALED_ERROR, math.inf if row.outcome == "fail" else 0.0)
        if row.group == "output":
            made = max(made, error)
        else:
            given = max(given, error)
    return "culprit" if made > given * policy.inherited else "inherited"
