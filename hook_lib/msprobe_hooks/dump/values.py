"""The recorded values of a call, in msprobe's order and under msprobe's names."""

from __future__ import annotations

import json
import math
import zlib
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias

import msgspec

from msprobe_hooks.dump.containers import split_name
from msprobe_hooks.dump.names import is_parameters_grad
from msprobe_hooks.dump.schema import MAX_DEPTH, NONFINITE_COUNTS, record_path
from msprobe_hooks.errors import RecordError
from msprobe_hooks.messages import escaped_name

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump

#: What a value is to its call. ``saved``: a variable that the user recorded by name, at level debug.
Group = Literal["input", "parameters", "output", "parameters_grad", "saved"]
Number: TypeAlias = bool | int | float


class Value(msgspec.Struct, frozen=True, array_like=True):
    """One recorded value of a record: a tensor or a plain Python value.

    Attributes:
        name: msprobe's name of it, such as ``Functional.linear.0.forward.input.0``.
        type: The recorded type, such as ``torch.Tensor`` or ``int``; empty for None.
        dtype: The dtype of a tensor, as recorded; empty for a plain value.
        shape: The shape of a tensor.
        requires_grad: Whether a tensor requires a gradient; None where it was not recorded.
        statistics: max, min, mean and norm of a tensor; None where they were not taken.
        checksum: The checksum of a tensor; None where it was not taken.
        data_name: The name of a tensor's file; None where it has none.
        text: A plain value, as text.
        nonfinite: How many elements of a tensor are NaN, +inf and -inf; None where that was not counted.
    """

    name: str
    type: str = ""
    dtype: str = ""
    shape: tuple[int, ...] = ()
    requires_grad: bool | None = None
    statistics: tuple[Number | None, Number | None, Number | None, Number | None] | None = None
    checksum: str | None = None
    data_name: str | None = None
    text: str = ""
    nonfinite: tuple[int, int, int] | None = None

    @property
    def is_tensor(self) -> bool:
        """Return whether the value is a tensor."""
        return bool(self.dtype)


class PlacedValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value with the group that it belongs to and its place in the call (``input.0``, ``output.1.2``)."""

    group: Group
    place: str
    value: Value

    @property
    def name(self) -> str:
        """The value's full name."""
        return self.value.name

    @property
    def key(self) -> tuple[Group, str]:
        """Group and place, which no other value of the call has."""
        return self.group, self.place


_FIELDS: tuple[tuple[str, Group, str], ...] = (
    ("input_args", "input", "input"),
    ("input_kwargs", "input", "input"),
    ("input", "input", "input"),
    ("parameters", "parameters", "parameters"),
    ("output", "output", "output"),
)
# In place of the inputs of a fed call: what the program passed.
_PASSED: tuple[tuple[str, Group, str], ...] = (
    ("passed_args", "input", "input"),
    ("passed_kwargs", "input", "input"),
    *_FIELDS[3:],
)
#: The names of a tensor's statistics in a file, in the order of ``Value.statistics``.
STATISTICS: Final = ("Max", "Min", "Mean", "Norm")
#: The texts that stand for numbers which JSON has none for.
NON_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
#: No size of a tensor and no integer that travels as a number is as large.
TOO_LARGE: Final = 2**63
_SIZES = frozenset({int})
_DETAILS = b'"details"'
# How the places of arguments begin in a record's details.
_PREFIXES = frozenset({"input", "kwargs"})
_NO_NUMBERS = (None, None, None, None)


def read_values(dump: Dump, record: str, *, as_passed: bool = False) -> list[PlacedValue]:
    """Return the values of one record: input (keyword arguments included), parameters, output, gradients.

    A leaf's name is that of its file where it has its own, as msprobe names it.

    Args:
        dump: The dump.
        record: The name of the record.
        as_passed: Whether inputs are those that the program passed, where a call was fed others in their place.

    Returns:
        The values in msprobe's order, each with its group and its place in the call.

    Raises:
        RecordError: The record is malformed; the text names the place in the file.
    """
    body = dump.body(record)
    if dump.level == "debug":
        return _saved(record, body)
    if not isinstance(body, dict):
        _refuse(record, "", "an object")
    if is_parameters_grad(record):
        return _gradients(record, body)
    values: list[PlacedValue] = []
    for key, group, prefix in _PASSED if as_passed and "passed_args" in body else _FIELDS:
        tree = body.get(key)
        if tree is not None:
            if not isinstance(tree, (list, dict)):
                _refuse(record, f".{key}", "an array or an object")
            _add_leaves(values, record, group, tree, prefix)
    return values


def unspelled_arguments(dump: Dump, record: str) -> dict[str, Value]:
    """Return the arguments that msprobe has no spelling for and this project's recorder keeps apart, by their place.

    These are dtypes and devices that were passed by position, layouts and complex numbers; `read_values` gives nothing
    in their place, or None. Raises RecordError where the record is malformed.
    """
    if dump.level == "debug" or _DETAILS not in bytes(dump.records[record]):
        return {}
    body = dump.body(record)
    details = body.get("details") if isinstance(body, dict) else None
    arguments: dict[str, Value] = {}
    for key, detail in details.items() if isinstance(details, dict) else ():
        prefix, _, rest = key.partition(".")
        if prefix in _PREFIXES and rest and isinstance(detail, dict) and "value" in detail:
            kind = detail.get("type")
            if not isinstance(kind, str):
                _refuse(record, f".details.{escaped_name(key)}.type", "a type's name")
            place = f"input.{escaped_name(rest)}"
            arguments[place] = _plain(f"{record}.{place}", kind, detail["value"])
    return arguments


def _saved(record: str, body: Any) -> list[PlacedValue]:
    """Return the values of a variable that was saved by name; the last word of its record begins their place."""
    values: list[PlacedValue] = []
    name, _, word = record.rpartition(".")
    _add_leaves(values, name, "saved", body, word)
    return values


def _gradients(record: str, body: dict[str, Any]) -> list[PlacedValue]:
    values: list[PlacedValue] = []
    for parameter, tree in zip(map(escaped_name, body), body.values(), strict=True):
        # msprobe wraps each gradient in a list of one and leaves the index out of its name.
        leaves = tree if isinstance(tree, list) else [tree]
        for i, leaf in enumerate(leaves):
            place = parameter if len(leaves) == 1 else f"{parameter}.{i}"
            _add_leaves(values, record, "parameters_grad", leaf, place)
    return values


def _add_leaves(values: list[PlacedValue], record: str, group: Group, tree: Any, place: str, depth: int = 0) -> None:
    if isinstance(tree, dict):
        kind = tree.get("type")
        if isinstance(kind, str):
            values.append(PlacedValue(group=group, place=place, value=_leaf(record, tree, kind, place)))
            return
        children: Any = ((escaped_name(key), child) for key, child in tree.items())
    elif isinstance(tree, list):
        children = enumerate(tree)
    else:
        name = f"{record}.{place}"
        value = _plain(name, type(tree).__name__, tree) if tree is not None else Value(name)
        values.append(PlacedValue(group=group, place=place, value=value))
        return
    if depth > MAX_DEPTH:
        _refuse(record, f".{place}", f"at most {MAX_DEPTH} levels")
    for key, child in children:
        _add_leaves(values, record, group, child, f"{place}.{key}", depth + 1)


def _leaf(record: str, leaf: dict[str, Any], kind: str, place: str) -> Value:
    dtype = leaf.get("dtype")
    if not isinstance(dtype, str):
        return _plain(f"{record}.{place}", kind, leaf.get("value", leaf.get("format", leaf.get("group_ranks"))))
    shape = leaf.get("shape")
    if (
        not isinstance(shape, list)
        or not _SIZES.issuperset(map(type, shape))
        or (shape and not 0 <= min(shape) <= max(shape) < TOO_LARGE)
    ):
        _refuse(record, f".{place}.shape", "an array of sizes")
    data_name = leaf.get("data_name") or leaf.get("datapath")
    checksum, requires_grad = leaf.get("md5"), leaf.get("requires_grad")
    nonfinite = None
    greatest, least, mean, norm = leaf.get("Max"), leaf.get("Min"), leaf.get("Mean"), leaf.get("Norm")
    if type(greatest) is type(least) is type(mean) is type(norm) is float:
        numbers: tuple[Number | None, ...] = (greatest, least, mean, norm)
    elif greatest is least is mean is norm is None:
        numbers = _NO_NUMBERS
    else:
        numbers = tuple(_statistic(record, place, leaf, key) for key in STATISTICS)
        nonfinite = _nonfinite(leaf)
    if not isinstance(data_name, str) or data_name == "-1":
        data_name = None
    name = f"{record}.{place}"
    if data_name and split_name(data_name) is None:
        name = escaped_name(data_name.rpartition(".")[0])
    return Value(
        name=name,
        type=kind,
        dtype=dtype,
        shape=tuple(shape),
        requires_grad=requires_grad if isinstance(requires_grad, bool) else None,
        statistics=numbers if numbers != _NO_NUMBERS else None,  # type: ignore[arg-type]
        checksum=checksum if isinstance(checksum, str) else None,
        data_name=data_name,
        nonfinite=nonfinite,
    )


def _nonfinite(leaf: dict[str, Any]) -> tuple[int, int, int] | None:
    nans, positive, negative = (leaf.get(key) for key in NONFINITE_COUNTS)
    if type(nans) is type(positive) is type(negative) is int:
        return nans, positive, negative
    return None


def _plain(name: str, kind: str, value: Any) -> Value:
    """Return a plain value; its checksum is msprobe's, of its text."""
    if kind == "float" and isinstance(value, str):
        value = NON_FINITE.get(value, value)
    text = value if isinstance(value, str) else json.dumps(value) if isinstance(value, (dict, list)) else str(value)
    statistics = (value,) * 4 if is_number(value) else None
    return Value(name=name, type=kind, statistics=statistics, checksum=f"{zlib.crc32(text.encode()):08x}", text=text)


def is_number(value: object) -> bool:
    """Return whether a value is compared as a number: of an integer that is too large the text is."""
    return isinstance(value, (int, float)) and (isinstance(value, float) or abs(value) < TOO_LARGE)


def _statistic(record: str, place: str, leaf: dict[str, Any], key: str) -> Number | None:
    value = leaf.get(key)
    if value is None or isinstance(value, float):
        return value
    if isinstance(value, int):
        return value if abs(value) < TOO_LARGE else _as_float(record, place, key, value)
    if isinstance(value, str):
        # Statistics of meta tensors and the like are words.
        return NON_FINITE.get(value)
    return _refuse(record, f".{place}.{key}", "a number")


def _as_float(record: str, place: str, key: str, value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return _refuse(record, f".{place}.{key}", "a number that a tensor can hold")


def _refuse(record: str, place: str, expected: str) -> NoReturn:
    raise RecordError(f"{record_path(record)}{place}", f"expected {expected}")
