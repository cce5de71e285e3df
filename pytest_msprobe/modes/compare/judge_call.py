"""One matched call compared: its values side by side, measured and judged, and whether its error is its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from msprobe_hooks.dump.values import PlacedValue, Value, read_values
from pytest_msprobe.engine.import_torch import import_torch
from pytest_msprobe.modes.compare.judging.rules import worse
from pytest_msprobe.modes.compare.measure.statistics import measure_statistics, scaled_error
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, Cause, DataMode, Outcome, Row, Unmeasured

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.modes.compare.judging.policy import ComparePolicy

_ORDER = {"input": 0, "parameters": 1, "output": 2, "parameters_grad": 3, "saved": 4}
# Kinds of plain values that name a place, which differs from machine to machine.
_PLACES = frozenset({"torch.device", "torch.ProcessGroup", "torch.Generator", "torch.distributed.ProcessGroup"})
_SAME = {SCALED_ERROR: 0.0}
_DIFFERENT = {SCALED_ERROR: math.inf}


def pair_values(
    target: list[PlacedValue], golden: list[PlacedValue]
) -> list[tuple[PlacedValue | None, PlacedValue | None]]:
    """Pair the values of two calls by group and place, what is left over of a group in order; in the rows' order."""
    if [placed[:2] for placed in target] == [placed[:2] for placed in golden]:
        return [*zip(target, golden, strict=True)]
    by_place = {placed[:2]: placed for placed in golden}
    pairs = [(placed, by_place.pop(placed[:2], None)) for placed in target]
    unmatched = [*by_place.values()]
    paired: list[tuple[PlacedValue | None, PlacedValue | None]] = []
    for own, other in pairs:
        if other is None:
            # An argument that one side passed by position and the other by name.
            found = next((placed for placed in unmatched if placed[0] == own[0] == "input"), None)
            if found is not None:
                unmatched.remove(found)
                other = found
        paired.append((own, other))
    paired += [(None, placed) for placed in unmatched]
    return sorted(paired, key=lambda pair: _ORDER[(pair[0] or pair[1])[0]])  # type: ignore[index]


def compare_values(
    target_dump: Dump,
    target: str,
    golden_dump: Dump,
    golden: str,
    mode: DataMode,
    named: Mapping[str, PlacedValue | None],
    dropped: Collection[str] = (),
) -> list[Row]:
    """Measure the values of two records side by side; outcomes are left to a policy.

    ``named`` gives the golden values that a user named for values of the target, by full name, None for none;
    ``dropped`` are golden values, by full name, that a user left out. Raises RecordError where a record is malformed.
    """
    target_values, golden_values = read_values(target_dump, target), read_values(golden_dump, golden)
    if not named and not dropped:
        return [_row(a, b, target_dump, golden_dump, mode) for a, b in pair_values(target_values, golden_values)]
    used = {value[2].name for value in named.values() if value is not None} | {*dropped}
    rest = [placed for placed in target_values if placed[2].name not in named]
    rows = [
        _row(placed, found, target_dump, golden_dump, mode)
        if (found := named[placed[2].name])
        else _left_out(placed, None)
        for placed in target_values
        if placed[2].name in named
    ]
    rows += [
        _row(a, b, target_dump, golden_dump, mode)
        for a, b in pair_values(rest, [placed for placed in golden_values if placed[2].name not in used])
    ]
    rows += [_left_out(None, placed) for placed in golden_values if placed[2].name in dropped]
    return sorted(rows, key=lambda row: _ORDER[row.group])


def _left_out(target: PlacedValue | None, golden: PlacedValue | None) -> Row:
    group, place, _ = target or golden  # type: ignore[misc]
    message = "it has no partner, by a mapping or because the frameworks differ"
    return Row(group, place, target and target[2], golden and golden[2], "skip", {}, "left out", (message,))


def _row(a: PlacedValue | None, b: PlacedValue | None, target_dump: Dump, golden_dump: Dump, mode: DataMode) -> Row:
    group, place, _ = a or b  # type: ignore[misc]
    target, golden = a and a[2], b and b[2]
    if target is None or golden is None:
        return Row(group, place, target, golden, "skip", {}, "unmatched")
    if math.prod(target.shape) == math.prod(golden.shape):
        # Where a run tells the elements alone, their shape is that of the other one.
        target, golden = (
            target if target_dump.keeps_shapes else replace(target, shape=golden.shape),
            golden if golden_dump.keeps_shapes else replace(golden, shape=target.shape),
        )
    unmeasured = _unmeasured(target, golden)
    if unmeasured:
        return Row(group, place, target, golden, "pass", {}, unmeasured)
    if not target.is_tensor:
        return Row(group, place, target, golden, "pass", _measure_plain(target, golden))
    if mode == "tensor" and target.data_name and golden.data_name:
        row = Row(group, place, target, golden, "pass")
        return _by_numpy(row, target_dump, golden_dump) or _measure_files()(row, target_dump, golden_dump)
    if mode == "tensor" and (target.data_name or golden.data_name):
        message = f"{'golden' if target.data_name else 'target'} has no data file"
        return Row(group, place, target, golden, "pass", {}, "no file", (message,))
    if mode == "md5" and target.checksum and golden.checksum:
        return Row(group, place, target, golden, "pass", _SAME if target.checksum == golden.checksum else _DIFFERENT)
    return _statistics_row(group, place, target, golden)


def _by_numpy(row: Row, target: Dump, golden: Dump) -> Row | None:
    """Measure files that numpy reads; None leaves them to torch. Statistics are compared without either."""
    from pytest_msprobe.modes.compare.measure.npy_pairs import measure_npy_files

    return measure_npy_files(row, target, golden)


@cache
def _measure_files() -> Callable[[Row, Dump, Dump], Row]:
    """Return what measures files, imported when the first one is met: it needs torch."""
    import_torch()
    from pytest_msprobe.modes.compare.measure.load import measure_files

    return measure_files


def _statistics_row(group: str, place: str, target: Value, golden: Value) -> Row:
    metrics = measure_statistics(target, golden)
    error = scaled_error(target, golden)
    if error is None:
        nothing = not math.prod(target.shape)
        return Row(group, place, target, golden, "pass", {}, "empty" if nothing else "no value")  # type: ignore[arg-type]
    return Row(group, place, target, golden, "pass", {**metrics, SCALED_ERROR: error})  # type: ignore[arg-type]


def _unmeasured(target: Value, golden: Value) -> Unmeasured:
    if target.is_tensor != golden.is_tensor:
        return "kind"
    if target.shape != golden.shape:
        return "shape"
    return ""


def _measure_plain(target: Value, golden: Value) -> dict[str, float]:
    if target.text == golden.text and target.type == golden.type:
        return {**measure_statistics(target, golden), **_SAME}
    if target.type == golden.type and target.type in _PLACES:
        return _SAME
    if target.statistics is not None and golden.statistics is not None:
        a, b = target.statistics[0], golden.statistics[0]
        if a == b or (a != a and b != b):
            return {**measure_statistics(target, golden), **_SAME}
        error = scaled_error(target, golden)
        return {**measure_statistics(target, golden), SCALED_ERROR: math.inf if error is None else error}
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
        if row.group == "saved":
            # Nothing recorded tells what went into it.
            return "culprit"
        if row.group == "parameters_grad":
            # What went into these sums is in no record of its own.
            return "inherited"
        error = row.metrics.get(SCALED_ERROR, math.inf if row.outcome == "fail" else 0.0)
        if row.group == "output":
            made = max(made, error)
        else:
            given = max(given, error)
    return "culprit" if made > given * policy.inherited else "inherited"
