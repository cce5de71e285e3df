"""Arguments that were set otherwise in one of two runs, as an eps or a dtype: no drift of numbers explains them.

Numbers that the program computed, as ``float(loss)``, follow from drift, and are no settings. A number counts as
computed if calls before returned it on both sides as a tensor of one element, or if it is a float with many digits that
is apart by at most ``inherited`` times as much as the runs are before it. Integers after the first other shape are
sizes, and integers after the first integers or bools that a call made otherwise may follow from these.
"""

from __future__ import annotations

import ast
import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from msprobe_hooks.dump.names import float_dtype, is_forward, split_called, split_direction
from msprobe_hooks.errors import DumpError
from msprobe_hooks.json_decoding import JsonError, decode_json
from msprobe_hooks.messages import counted, listed
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, ComparedCall, Row

if TYPE_CHECKING:
    from msprobe_hooks.dump.values import Number, Value
    from pytest_msprobe.modes.compare.matching.matches import Match

# As many digits as a person writes: of a number that was computed, so few are left once in ten thousand million times.
_WRITTEN_DIGITS = 6
# How the types of dtypes end, whose names are argument enough: ``to`` takes one in several places.
_DTYPE = ".dtype"
# By the type in a record's name: where torch's wheels hold the signatures of such functions, the first that has one.
_FILES = {
    "Functional": ("nn/functional.py", "nn/functional.pyi", "_C/_nn.pyi", "_C/_VariableFunctions.pyi"),
    "Torch": ("functional.py", "_C/_VariableFunctions.pyi"),
    "Tensor": ("_C/__init__.pyi",),
}
_METHODS = re.compile(r"^class (?:_TensorBase|TensorBase)\b.*?(?=^class )", re.DOTALL | re.MULTILINE)


class Settings:
    """Finds the settings that differ among the arguments of calls.

    ``judge`` gives the rows of a match, ``is_equal`` says whether one needs no judging. What the runs computed is read
    from the first call on, once, and not before an argument that is no tensor differs. Where the runs part at the calls
    in places 3 and 17::

        _drift_places  [    3,    17]
        _drifts        [0.0,  1e-6,  4e-4]     how far values differ at most, up to and between them
        _computed      {(12.5, 12.7): 17}      both runs' numbers of a result, and the place of its call
    """

    def __init__(
        self,
        matches: Sequence[Match],
        *,
        inherited: float,
        judge: Callable[[str, str], list[Row]],
        is_equal: Callable[[Match], bool],
    ) -> None:
        self._matches = matches
        self._inherited = inherited
        self._judge = judge
        self._is_equal = is_equal
        self._read = 0
        # The places of calls after which the runs are further apart than before, and how far, as a fraction.
        self._drift_places: list[int] = []
        self._drifts: list[float] = [0.0]
        self._computed: dict[tuple[Number, Number], int] = {}
        # After this place other integers follow from other shapes, integers or bools.
        self._recounted = len(matches)

    def marked(self, order: int, rows: list[Row]) -> list[Row]:
        """Return the judged rows of the call in a place, those of settings with a name and both values."""
        record = self._matches[order].target or ""
        if not is_forward(record) or not any(map(_may_be_setting, rows)):
            return rows
        self._read_until(order)
        may_be_sizes = order > self._recounted or any(row.unmeasured == "shape" for row in rows if row.group == "input")
        return [
            _as_setting(row, record)
            if _may_be_setting(row) and not self._is_computed(order, row, may_be_sizes)
            else row
            for row in rows
        ]

    def _is_computed(self, order: int, row: Row, may_be_sizes: bool) -> bool:
        pairs = _numbers(row.target, row.golden)
        return pairs is not None and all(self._follows(order, *pair, may_be_sizes) for pair in pairs)

    def _follows(self, order: int, ours: Number, theirs: Number, may_be_sizes: bool) -> bool:
        """Return whether a number that differs follows from what differs before."""
        if self._computed.get((ours, theirs), order) < order:
            return True
        if isinstance(ours, int) and isinstance(theirs, int):
            return may_be_sizes and not isinstance(ours, bool)
        if _is_written(ours) and _is_written(theirs):
            return False
        scale = max(abs(ours), abs(theirs))
        drift = self._drifts[bisect_left(self._drift_places, order)]
        return not math.isfinite(scale) or abs(ours - theirs) <= self._inherited * drift * scale

    def _read_until(self, order: int) -> None:
        while self._read < order:
            place, self._read = self._read, self._read + 1
            match = self._matches[place]
            if match.target is not None and match.golden is not None:
                # What cannot be read is reported by its own item.
                with suppress(DumpError):
                    if not self._is_equal(match):
                        self._note(place, self._judge(match.target, match.golden))

    def _note(self, place: int, rows: Sequence[Row]) -> None:
        drift = self._drifts[-1]
        for row in rows:
            if row.unmeasured == "shape" or _is_recount(row):
                self._recounted = min(self._recounted, place)
            error = row.metrics.get(SCALED_ERROR, 0.0)
            if row.target is None or row.golden is None or not (error and row.target.is_tensor):
                continue
            drift = max(drift, error)
            ours, theirs = _only_element(row.target), _only_element(row.golden)
            if row.group == "output" and ours is not None and theirs is not None:
                self._computed.setdefault((ours, theirs), place)
        if drift > self._drifts[-1]:
            self._drift_places.append(place)
            self._drifts.append(drift)


def _may_be_setting(row: Row) -> bool:
    """Return whether a row is an argument that differs, and no tensor on either side that has one."""
    return (
        row.group == "input"
        and row.differs
        and not any(value is not None and value.is_tensor for value in (row.target, row.golden))
    )


def _is_recount(row: Row) -> bool:
    """Return whether a row is a tensor of integers or bools that a call made otherwise."""
    return (
        row.group == "output"
        and row.differs
        and row.target is not None
        and row.target.is_tensor
        and not float_dtype(row.target.dtype)
    )


def _as_setting(row: Row, record: str) -> Row:
    ours, theirs = (_text(value) for value in (row.target, row.golden))
    words = f"{_name(row, record)} {ours}, golden {theirs}"
    return replace(row, setting=words, messages=(words,))


def _text(value: Value | None) -> str:
    return "not given" if value is None else value.text or "None"


def _name(row: Row, record: str) -> str:
    """Return the name of an argument where it is known, with the place in it, else its kind or place in the call."""
    if row.target is not None and row.target.type.endswith(_DTYPE):
        return _DTYPE.removeprefix(".")
    first, *rest = row.place.removeprefix("input.").split(".")
    name = _argument_name(split_called(record)[0], int(first)) if first.isdecimal() else first
    return "".join([name, *(f"[{index}]" for index in rest)]) if name else row.place


def _numbers(target: Value | None, golden: Value | None) -> list[tuple[Number, Number]] | None:
    """Return the numbers of two values side by side, those of a slice or of sizes too; None where they are others."""
    if target is None or golden is None:
        return None
    if target.statistics is not None and golden.statistics is not None:
        ours, theirs = target.statistics[0], golden.statistics[0]
        return None if ours is None or theirs is None else [(ours, theirs)]
    ours_of, theirs_of = _members(target), _members(golden)
    differing = [(a, b) for a, b in zip(ours_of, theirs_of, strict=False) if a != b]
    is_whole = len(ours_of) == len(theirs_of) and differing
    pairs = [(a, b) for a, b in differing if a is not None and b is not None]
    return pairs if is_whole and len(pairs) == len(differing) else None


def _members(value: Value) -> list[int | float | None]:
    try:
        return decode_json(value.text.encode(errors="replace"), list[int | float | None])
    except JsonError:
        return []


def _only_element(value: Value) -> Number | None:
    """Return the element of a tensor that has one, None for any other."""
    if value.statistics is None or math.prod(value.shape) != 1:
        return None
    return value.statistics[0]


def _is_written(number: Number) -> bool:
    digits = f"{number!r}".partition("e")[0].replace(".", "").strip("-0")
    return len(digits) <= _WRITTEN_DIGITS


def setting_lines(calls: Iterable[ComparedCall], most: int) -> list[str]:
    """Return a line for each setting that differs, with the first call and up to ``most`` others of the same API."""
    groups: dict[tuple[str, str], list[str]] = {}
    for call in calls:
        words = ", ".join(row.setting for row in call.rows if row.setting)
        if words:
            groups.setdefault((split_called(call.record)[0], words), []).append(call.record)
    lines = [
        f"settings that differ: {first}: {words}{f'; and {listed(map(_short, others), most)}' if others else ''}"
        for (_, words), (first, *others) in groups.items()
    ]
    left_out = len(lines) - most
    return lines if left_out <= 0 else [*lines[:most], f"settings that differ: {counted(left_out, 'other')}"]


def _short(record: str) -> str:
    """Return a record without its type and direction, as ``layer_norm.3``."""
    key, direction = split_direction(record)
    return key.partition(".")[2] if direction else record


@cache
def _argument_name(called: str, position: int) -> str:
    """Return the name of a positional argument of ``Type.api``, empty where torch's files do not agree on one.

    These are read as text, and torch is not imported.
    """
    type_, _, api = called.partition(".")
    for file in _FILES.get(type_, ()):
        signatures = [*_signatures(file, api)]
        if signatures:
            names = {names[position] for names in signatures if position < len(names)}
            return names.pop() if len(names) == 1 else ""
    return ""


def _signatures(file: str, api: str) -> Iterator[list[str]]:
    """Yield the names of the positional arguments of each overload of a function."""
    text = _text_of(file)
    for match in re.finditer(rf"^[ ]*def {re.escape(api)}\((.*?)\)(?: ->[^\n]*)?:", text, re.DOTALL | re.MULTILINE):
        try:
            (function,) = ast.parse(f"def f({match[1]}): ...").body
        except SyntaxError:
            continue
        if isinstance(function, ast.FunctionDef):
            yield [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]


@cache
def _text_of(file: str) -> str:
    """Return what a file of the installed torch holds, of the stubs of its core the methods of tensors alone."""
    try:
        spec = find_spec("torch")
        if spec is None or spec.origin is None:
            return ""
        text = (Path(spec.origin).parent / file).read_text(encoding="utf-8")
    except (OSError, ImportError, ValueError):
        return ""
    if file != "_C/__init__.pyi":
        return text
    methods = _METHODS.search(text)
    return methods[0] if methods else ""
