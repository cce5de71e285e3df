"""Rules of a precision policy: the standard and limits of some calls, parsed from the rows of its YAML table."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from msprobe_standards.decoding import decode_yaml
from msprobe_standards.policy_files import measured_file, measured_rules
from msprobe_standards.validation import hint, shown

if TYPE_CHECKING:
    from msprobe_standards.protocol import Standard

_FAMILIES = ("bool", "int", "float", "complex", "float8")
_FRAMEWORKS = ("pytorch", "mindspore")
# Those of any machine; where torch has others, a rule may be for them.
_DEVICES = ("npu", "cuda", "cpu")
_ACCELERATORS = ("xpu", "mps", "hpu", "mtia", "xla", "maia")
_DTYPES = {str(value).removeprefix("torch."): value for value in vars(torch).values() if isinstance(value, torch.dtype)}
#: Modes in which a device computes with fewer bits than its dtypes have.
MATH_MODES = ("tf32", "hf32", "bf16", "fp16_reduction", "bf16_reduction", "fp16_accumulation")
_NONDETERMINISTIC_KEYS = ("apis", "backward", "framework", "device")
_SCREENING_KEYS = ("apis", "above")
_RULE_KEYS = (
    "standard",
    "limits",
    "apis",
    "output",
    "input",
    "backward",
    "scalars",
    "recorded_baseline",
    "framework",
    "device",
    "math_mode",
    "level",
)


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of a policy: a standard and the conditions under which it judges, None where any will do."""

    standard: Standard
    apis: frozenset[str] | None = None
    output: frozenset[str] | None = None
    input: frozenset[str] | None = None
    backward: bool | None = None
    scalars: bool | None = None
    recorded_baseline: bool | None = None
    framework: str | None = None
    device: str | None = None
    math_mode: frozenset[str] | None = None
    level: str | None = None


@dataclass(frozen=True, slots=True)
class Nondeterministic:
    """APIs whose result a correct device may compute otherwise each time, under conditions as a rule has them."""

    apis: frozenset[str]
    backward: bool | None = None
    framework: str | None = None
    device: str | None = None


@dataclass(frozen=True, slots=True)
class Screened:
    """APIs whose calls are screened where they take more than so many billion operations; None: never."""

    apis: frozenset[str]
    above: float | None


def rows_of(row: object, where: str) -> Iterator[tuple[object, str]]:
    """Yield a row with its place, in place of ``{measured: name}`` those of that list."""
    if not isinstance(row, dict) or "measured" not in row:
        yield row, where
        return
    check_keys(row, ("measured",), where)
    path = measured_file(one_of(row["measured"], measured_rules(), f"{where}: measured"))
    for i, measured in enumerate(_measured_rows(path)):
        yield measured, f"{path}: [{i}]"


@cache
def _measured_rows(path: Path) -> Sequence[object]:
    rows: Sequence[object] = decode_yaml(path.read_bytes())
    return rows


def parse_rule(
    row: object, where: str, levels: Sequence[str], make: Callable[[str, Mapping[str, Any]], Standard]
) -> Rule:
    """Return the rule of a row. Raises ValueError that says where it is wrong."""
    if not isinstance(row, dict) or not isinstance(row.get("standard"), str):
        raise ValueError(f"{where}: {shown(row)} is not a mapping with a 'standard'")
    check_keys(row, _RULE_KEYS, where)
    limits = row.get("limits") or {}
    if not isinstance(limits, dict) or not all(isinstance(key, str) for key in limits):
        raise ValueError(f"{where}: limits: {shown(limits)} is not a mapping of limits to numbers")
    try:
        judge = make(row["standard"], limits)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    kinds = partial(strings, row, where, allowed=(*_FAMILIES, *_DTYPES))
    flag = partial(optional, row, where, allowed=(True, False))
    return Rule(
        judge,
        strings(row, where, "apis"),
        kinds(key="output"),
        kinds(key="input"),
        flag(key="backward"),
        flag(key="scalars"),
        flag(key="recorded_baseline"),
        optional(row, where, "framework", _FRAMEWORKS),
        device_type(row, where),
        strings(row, where, "math_mode", MATH_MODES),
        optional(row, where, "level", tuple(levels)),
    )


def mappings(table: Mapping[str, Any], path: Path, key: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the mappings of a list, all with ``apis``, with their places."""
    rows = table.get(key, [])
    if not isinstance(rows, list):
        raise ValueError(f"{path}: {key}: {shown(rows)} is not a list of mappings with 'apis'")
    for i, row in enumerate(rows):
        where = f"{path}: {key}[{i}]"
        if not isinstance(row, dict) or "apis" not in row:
            raise ValueError(f"{where}: {shown(row)} is not a mapping with 'apis'")
        yield row, where


def parse_screened(row: Mapping[str, Any], where: str) -> Screened:
    """Return a row of ``screening``. Raises ValueError that says where it is wrong."""
    check_keys(row, _SCREENING_KEYS, where)
    apis, above = frozenset(names_in(row["apis"], f"{where}: apis")), row.get("above")
    if above == "never":
        return Screened(apis, None)
    if isinstance(above, bool) or not isinstance(above, int | float) or not 0 < above < math.inf:
        raise ValueError(f"{where}: above: {shown(above)}; allowed: a positive number of billion operations, or never")
    return Screened(apis, float(above))


def parse_nondeterministic(row: Mapping[str, Any], where: str) -> Nondeterministic:
    """Return a row of ``nondeterministic``. Raises ValueError that says where it is wrong."""
    check_keys(row, _NONDETERMINISTIC_KEYS, where)
    return Nondeterministic(
        frozenset(names_in(row["apis"], f"{where}: apis")),
        optional(row, where, "backward", (True, False)),
        optional(row, where, "framework", _FRAMEWORKS),
        device_type(row, where),
    )


def check_keys(table: Mapping[Any, Any], keys: Sequence[str], where: str) -> None:
    """Raise ValueError for a key that a mapping must not have."""
    for key, value in table.items():
        if key not in keys:
            raise ValueError(f"{where}: unknown key {shown(key)} with value {shown(value)}{hint(key, keys)}")


def one_of(value: Any, allowed: Sequence[object], where: str) -> Any:
    """Return a value that is one of those allowed. Raises ValueError for another."""
    if value not in allowed:
        raise ValueError(f"{where}: {shown(value)}{hint(value, map(str, allowed))}")
    return value


def optional(row: Mapping[str, Any], where: str, key: str, allowed: Sequence[object]) -> Any:
    """Return a key's value that is one of those allowed, None where the row lacks the key."""
    return one_of(row[key], allowed, f"{where}: {key}") if key in row else None


def device_type(row: Mapping[str, Any], where: str) -> str | None:
    """Return the device type of a row, None where it has none: one of torch's, or of a backend that is installed.

    Raises ValueError that lists those of this torch for another one, and for ``meta``, whose tensors have no values.
    """
    name = row.get("device")
    if "device" not in row or name in _DEVICES:
        return name
    if isinstance(name, str) and name.isidentifier() and name != "meta":
        with suppress(RuntimeError):
            return torch.device(name).type
        if find_spec(f"torch_{name}"):
            return name
    types = (*_ACCELERATORS, torch._C._get_privateuse1_backend_name())
    present = dict.fromkeys((*_DEVICES, *(kind for kind in types if hasattr(torch, kind))))
    problem = f"{where}: device: {shown(name)}; known: {', '.join(present)}"
    raise ValueError(f"{problem}, and the types whose package torch_<type> is installed")


def strings(
    row: Mapping[str, Any], where: str, key: str, allowed: Collection[str] | None = None
) -> frozenset[str] | None:
    """Return the strings of a key that has one or a list of them. Raises ValueError for anything else."""
    if key not in row:
        return None
    values = names_in(row[key], f"{where}: {key}")
    for value in values:
        if allowed is not None and value not in allowed:
            raise ValueError(f"{where}: {key}: {shown(value)}{hint(value, allowed)}")
    return frozenset(values)


def names_in(values: object, where: str) -> list[str]:
    """Return a list of names. Raises ValueError for anything else."""
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{where}: {shown(values)} is not a list of names")
    return values
