"""Values of two matched calls side by side: by tensors or statistics, as recorded or transformed."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

from msgspec.structs import replace

from msprobe_hooks.dump.values import PlacedValue, Value, read_values, unspelled_arguments
from pytest_msprobe.engine.import_torch import import_torch
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, STATISTICS, DataMode, Row, Unmeasured

if TYPE_CHECKING:
    from msprobe_hooks.dump.values import Number
    from pytest_msprobe.modes.compare.measure.compared_sides import ComparedSides

_DIFFERENCES = tuple(f"{name}_diff" for name in STATISTICS)
_RELATIVES = tuple(f"{name}_rel_diff" for name in STATISTICS)
_ZEROS = dict.fromkeys((*_DIFFERENCES, *_RELATIVES), 0.0)


def measure_statistics(target: Value, golden: Value) -> dict[str, float]:
    """Return target less golden, and that over |golden|, for max, min, mean and norm.

    Equal numbers, NaN against NaN and inf against an inf of the same sign differ by 0; any other pair with a NaN or
    inf differs by inf. Relative to a golden 0, a difference is inf. What a side lacks is absent.
    ``nonfinite_mismatch`` is how many elements at least are NaN or inf on one side only, where both sides counted them.
    """
    target_statistics, golden_statistics = target.statistics, golden.statistics
    if target_statistics is None or golden_statistics is None:
        return {}
    mismatch = _nonfinite_mismatch(target, golden)
    if target_statistics == golden_statistics and None not in target_statistics and not mismatch:
        return _ZEROS
    metrics: dict[str, float] = {}
    for name, a, b in zip(_DIFFERENCES, target_statistics, golden_statistics, strict=True):
        if a is not None and b is not None:
            metrics[name] = _difference(a, b)
    for name, difference_name, b in zip(_RELATIVES, _DIFFERENCES, golden_statistics, strict=True):
        if difference_name in metrics:
            metrics[name] = _relative(metrics[difference_name], b)
    if mismatch:
        metrics["nonfinite_mismatch"] = float(mismatch)
    return metrics


def _nonfinite_mismatch(target: Value, golden: Value) -> int:
    if target.nonfinite is golden.nonfinite or target.nonfinite == golden.nonfinite:
        return 0
    # A side that did not count them has none where its extrema are finite.
    (ours, theirs) = (side.nonfinite or _none_of(side) for side in (target, golden))
    if ours is None or theirs is None:
        return 0
    more = [a - b for a, b in zip(ours, theirs, strict=True)]
    return max(sum(surplus for surplus in more if surplus > 0), -sum(surplus for surplus in more if surplus < 0))


def _none_of(value: Value) -> tuple[int, int, int] | None:
    extrema = (value.statistics or (None,))[:2]
    return (0, 0, 0) if all(extremum is not None and math.isfinite(extremum) for extremum in extrema) else None


def _difference(a: Number, b: Number) -> float:
    if a == b or (a != a and b != b):
        return 0.0
    if not (math.isfinite(a) and math.isfinite(b)):
        return -math.inf if a < b else math.inf
    try:
        return float(a - b)
    except OverflowError:
        return math.inf


def _relative(difference: float, golden: Number | None) -> float:
    if difference == 0:
        return 0.0
    if not golden or not math.isfinite(difference):
        return math.inf
    return abs(difference / golden)


def scaled_error(target: Value, golden: Value) -> float | None:
    """Return how far two tensors are apart by their statistics alone, as a fraction of their own scale.

    Max, min and mean are measured against the largest magnitude on either side, the norm against the larger norm: a
    mean or minimum near zero does not make a small difference large. 0.0 is equal, ``inf`` a NaN or inf on one side
    only, None not comparable.
    """
    target_statistics, golden_statistics = target.statistics, golden.statistics
    if target_statistics is None or golden_statistics is None:
        return None
    if _nonfinite_mismatch(target, golden):
        return math.inf
    if target_statistics == golden_statistics:
        return 0.0
    extremes = [abs(x) for x in (*target_statistics[:2], *golden_statistics[:2]) if x is not None and math.isfinite(x)]
    scale = max(extremes, default=0.0)
    worst: float | None = None
    for i, (a, b) in enumerate(zip(target_statistics, golden_statistics, strict=True)):
        if a is None or b is None:
            continue
        difference = abs(_difference(a, b))
        if i == 3 and math.isfinite(a) and math.isfinite(b):
            scale = max(abs(a), abs(b))
        error = 0.0 if difference == 0 else math.inf if not scale or difference == math.inf else difference / scale
        worst = error if worst is None else max(worst, error)
    return worst


# In which a table shows the values of a call.
_ORDER = {"input": 0, "parameters": 1, "output": 2, "parameters_grad": 3, "saved": 4}
# Kinds of plain values that name a place, which differs from machine to machine.
_PLACES = frozenset({"torch.device", "torch.ProcessGroup", "torch.Generator", "torch.distributed.ProcessGroup"})
# A device that is passed by its name, as ``cuda:0``.
_DEVICE = re.compile(r"(?:cpu|cuda|npu|xpu|mps|hpu|mtia|mlu|musa|gcu|xla|privateuseone|meta)(?::\d+)?")
_SAME = {SCALED_ERROR: 0.0}
_DIFFERENT = {SCALED_ERROR: math.inf}


def pair_values(
    target: list[PlacedValue], golden: list[PlacedValue]
) -> list[tuple[PlacedValue | None, PlacedValue | None]]:
    """Pair the values of two calls by group and place, what is left over of a group in order; in the rows' order."""
    if [placed.key for placed in target] == [placed.key for placed in golden]:
        return [*zip(target, golden, strict=True)]
    by_place = {placed.key: placed for placed in golden}
    pairs = [(placed, by_place.pop(placed.key, None)) for placed in target]
    unmatched = [*by_place.values()]
    paired: list[tuple[PlacedValue | None, PlacedValue | None]] = []
    for own, other in pairs:
        if other is None:
            # An argument that one side passed by position and the other by name.
            counterpart = next((placed for placed in unmatched if placed.group == own.group == "input"), None)
            if counterpart is not None:
                unmatched.remove(counterpart)
                other = counterpart
        paired.append((own, other))
    paired += [(None, placed) for placed in unmatched]
    return sorted(paired, key=lambda pair: min(_ORDER[placed.group] for placed in pair if placed is not None))


def compare_values(
    sides: ComparedSides,
    target: str,
    golden: str,
    mode: DataMode,
    named: Mapping[str, PlacedValue | None],
    dropped: Collection[str] = (),
) -> list[Row]:
    """Measure the values of two records side by side by ``mode``; outcomes are left to a policy.

    ``named`` gives the golden values that a user named for values of the target, by full name, None for none;
    ``dropped`` are golden values, by full name, that a user left out. Raises RecordError where a record is malformed.
    """
    # What a fed call was given is golden's own; what the program passed in its place is its work.
    target_values, golden_values = read_values(sides.target, target, as_passed=True), read_values(sides.golden, golden)
    call = _Call(sides, (target, golden), mode)
    if not named and not dropped:
        return call.with_unspelled([call.row(a, b) for a, b in pair_values(target_values, golden_values)])
    used = {value.name for value in named.values() if value is not None} | {*dropped}
    rest = [placed for placed in target_values if placed.name not in named]
    rows = [
        call.row(placed, golden_value) if (golden_value := named[placed.name]) else _left_out(placed, None)
        for placed in target_values
        if placed.name in named
    ]
    rows += [
        call.row(a, b) for a, b in pair_values(rest, [placed for placed in golden_values if placed.name not in used])
    ]
    rows += [_left_out(None, placed) for placed in golden_values if placed.name in dropped]
    return call.with_unspelled(sorted(rows, key=lambda row: _ORDER[row.group]))


def _left_out(target: PlacedValue | None, golden: PlacedValue | None) -> Row:
    message = "no partner: left out by a mapping, or the frameworks differ"
    return replace(_unmeasured_row(target, golden), outcome="skip", unmeasured="left out", messages=(message,))


@dataclass(frozen=True, slots=True)
class _Call:
    """Two records whose values are measured by ``mode``."""

    sides: ComparedSides
    records: tuple[str, str]
    mode: DataMode

    def row(self, a: PlacedValue | None, b: PlacedValue | None) -> Row:
        """Return the measured row of two values."""
        row, sides = _unmeasured_row(a, b), self.sides
        target, golden = row.target, row.golden
        if target is None or golden is None:
            return replace(row, outcome="skip", unmeasured="unmatched")
        if sides.transformations is not None and target.is_tensor and golden.is_tensor:
            transformed = sides.transformations.measured(row, sides, self.records, self.mode)
            if transformed is not None:
                return transformed
        if math.prod(target.shape) == math.prod(golden.shape) and target.shape != golden.shape:
            # Where a run records the elements alone, their shape is that of the other one.
            target, golden = (
                target if sides.target.keeps_shapes else replace(target, shape=golden.shape),
                golden if sides.golden.keeps_shapes else replace(golden, shape=target.shape),
            )
            row = replace(row, target=target, golden=golden)
        unmeasured = _unmeasured(target, golden)
        if unmeasured:
            return replace(row, unmeasured=unmeasured)
        if not target.is_tensor:
            return replace(row, metrics=_measure_plain(target, golden))
        if self.mode == "tensor" and target.data_name and golden.data_name:
            return self._by_files(row)
        if self.mode == "tensor" and (target.data_name or golden.data_name):
            message = f"{'golden' if target.data_name else 'target'} has no data file"
            return replace(row, unmeasured="no file", messages=(message,))
        if self.mode == "md5" and target.checksum and golden.checksum:
            return replace(row, metrics=_SAME if target.checksum == golden.checksum else _DIFFERENT)
        error = scaled_error(target, golden)
        if error is None:
            return replace(row, unmeasured="no value" if math.prod(target.shape) else "empty")
        return replace(row, metrics={**measure_statistics(target, golden), SCALED_ERROR: error})

    def with_unspelled(self, rows: list[Row]) -> list[Row]:
        """Return the rows with the arguments that a record keeps apart: those that have a row, and those that differ.

        Where one side does not say what it was given, as msprobe's own dumps do not, nothing changes.
        """
        (target, golden), sides = self.records, self.sides
        ours, theirs = unspelled_arguments(sides.target, target), unspelled_arguments(sides.golden, golden)
        for place in {**ours, **theirs}:
            own = None if place in ours and place in theirs else ours.get(place) or theirs[place]
            index = _counterpart(rows, place, own)
            existing = None if index is None else rows[index]
            if existing and existing.unmeasured == "left out":
                continue
            a = ours.get(place) or (existing.target if existing else None)
            b = theirs.get(place) or (existing.golden if existing else None)
            if a is None or b is None or not (a.type and b.type):
                continue
            row = self.row(*(PlacedValue(group="input", place=place, value=value) for value in (a, b)))
            if index is not None:
                rows = [*rows[:index], row, *rows[index + 1 :]]
            elif row.metrics.get(SCALED_ERROR):
                inputs = sum(other.group == "input" for other in rows)
                rows = [*rows[:inputs], row, *rows[inputs:]]
        return rows

    def _by_files(self, row: Row) -> Row:
        sides = self.sides
        # Statistics are compared without numpy, and what that reads without torch.
        from pytest_msprobe.modes.compare.measure.accumulate import measure_by_numpy

        by_numpy = None if sides.metrics else measure_by_numpy(row, sides.target, sides.golden)
        measured: Row = by_numpy or by_torch().measure_files(row, sides.target, sides.golden, sides.metrics)
        return measured


def _unmeasured_row(target: PlacedValue | None, golden: PlacedValue | None) -> Row:
    placed = golden if target is None else target
    assert placed is not None
    return Row(
        group=placed.group,
        place=placed.place,
        target=None if target is None else target.value,
        golden=None if golden is None else golden.value,
        outcome="pass",
    )


def _counterpart(rows: list[Row], place: str, own: Value | None) -> int | None:
    """Return the index of an argument's row, else that of one of its kind that a side passed at another place.

    ``own`` is the argument where one side alone keeps it apart.
    """
    indices = [index for index, row in enumerate(rows) if row.group == "input"]
    at_place = next((index for index in indices if rows[index].place == place), None)
    if at_place is not None or own is None:
        return at_place
    return next(
        (
            index
            for index in indices
            if rows[index].unmeasured == "unmatched"
            and own.type in {side.type for side in (rows[index].target, rows[index].golden) if side}
        ),
        None,
    )


@cache
def by_torch() -> ModuleType:
    """Return the module `load`, imported when a file is met that needs torch."""
    import_torch()
    from pytest_msprobe.modes.compare.measure import load

    return load


def _unmeasured(target: Value, golden: Value) -> Unmeasured:
    if target.is_tensor != golden.is_tensor:
        return "kind"
    if target.shape != golden.shape:
        return "shape"
    return ""


def _measure_plain(target: Value, golden: Value) -> dict[str, float]:
    if target.text == golden.text and target.type == golden.type:
        return {**measure_statistics(target, golden), **_SAME}
    if (target.type == golden.type and target.type in _PLACES) or (_is_device(target) and _is_device(golden)):
        return _SAME
    if target.statistics is not None and golden.statistics is not None:
        a, b = target.statistics[0], golden.statistics[0]
        if a == b or (a != a and b != b):
            return {**measure_statistics(target, golden), **_SAME}
        error = scaled_error(target, golden)
        return {**measure_statistics(target, golden), SCALED_ERROR: math.inf if error is None else error}
    return _DIFFERENT


def _is_device(value: Value) -> bool:
    return value.type == "torch.device" or (value.type == "str" and _DEVICE.fullmatch(value.text) is not None)
