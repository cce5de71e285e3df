"""The standards for compared runs: tables in YAML, read and checked here, and the rules that they name."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

from msgspec.structs import replace

from msprobe_hooks.regular_files import read_regular
from msprobe_standards.decoding import YamlError, decode_yaml
from msprobe_standards.validation import is_limit, shown
from pytest_msprobe.errors import unknown
from pytest_msprobe.modes.compare.judging.rules import RULES, RowRule
from pytest_msprobe.modes.compare.measure.own_metrics import BUILT_IN_METRICS
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, STATISTICS_METRICS, TENSOR_METRICS, Cause, DataMode, Row

# Users type the names that the policies for checks have too; a file's name says which kind of run it is for.
_BUILT_IN = {
    file.stem.removeprefix("compare-"): file for file in (Path(__file__).parent / "policies").glob("compare-*.yaml")
}
_KEYS = ("rule", "limits", "inherited", "unmatched", "other_shapes", "exempt_apis", "exempt_from_growth", "require")

_REQUIREMENT = re.compile(r"\s*(\w+)\s*(<=|>=|<|>)\s*(\S+)\s*")
_HOLDS: Final = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}
_MEASURED: Final[dict[DataMode, Collection[str]]] = {
    "tensor": {SCALED_ERROR, *TENSOR_METRICS},
    "statistics": {SCALED_ERROR, *STATISTICS_METRICS},
    "md5": {SCALED_ERROR},
    "structure": (),
}


@dataclass(frozen=True)
class RequiredMetric:
    """A metric that must be above or below a number wherever it is measured."""

    metric: str
    relation: str
    limit: float

    @property
    def text(self) -> str:
        """The requirement as a policy spells it."""
        return f"{self.metric} {self.relation} {self.limit:g}"

    def judge(self, row: Row) -> Row:
        """Return a row, failed where it has the metric and that is not as required; NaN never is."""
        value = row.metrics.get(self.metric)
        if value is None or _HOLDS[self.relation](value, self.limit):
            return row
        number = "NaN" if math.isnan(value) else f"{value:.6g}"
        return replace(row, outcome="fail", messages=(*row.messages, f"{self.metric} {number}, required {self.text}"))

    def is_measured(self, mode: DataMode) -> bool:
        """Return whether values of dumps that are compared by this mode have the metric."""
        return self.metric in _MEASURED[mode] or (mode == "tensor" and self.metric not in BUILT_IN_METRICS)


def cause_of_required(rows: Iterable[Row]) -> Cause:
    """Return the cause of a call that fails by a required metric alone: inherited where its inputs fail, too."""
    has_entered = any(row.outcome == "fail" and row.group in ("input", "parameters") for row in rows)
    return "inherited" if has_entered else "culprit"


@dataclass(frozen=True)
class ComparePolicy:
    """A standard for compared runs.

    ``inherited`` is how many times the error of its inputs a call may show without being their culprit,
    ``unmatched`` what comes of a call without partner, ``other_shapes`` what comes of one that differs after the runs
    were given other shapes. ``required`` are metrics that fail a value on their own.
    """

    name: str
    rule: RowRule
    inherited: float
    unmatched: Literal["skip", "warn", "fail"]
    other_shapes: Literal["skip", "fail"]
    required: tuple[RequiredMetric, ...] = ()


def load_policy(source: str, own_metrics: Iterable[str] = ()) -> ComparePolicy:
    """Load a built-in policy by name, or one from a YAML file, which may name the user's ``own_metrics``.

    Raises ValueError that names file, key, value and what is allowed.
    """
    path = Path(source) if source.endswith((".yaml", ".yml")) else _BUILT_IN.get(source)
    if path is None:
        raise ValueError(f"{unknown('policy', source, sorted(_BUILT_IN))}, and paths of .yaml files")
    try:
        table = decode_yaml(read_regular(path))
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
    except YamlError as error:
        raise ValueError(f"{path}: {error}") from None
    if not isinstance(table, dict) or "rule" not in table:
        keys = ", ".join(_KEYS)
        raise ValueError(f"{path}: not a policy for compared runs; expected a mapping with 'rule' and the keys {keys}")
    for key in table:
        if key not in _KEYS:
            raise ValueError(f"{path}: {unknown('key', key, _KEYS)}")
    unmatched = table.get("unmatched", "skip")
    if unmatched not in ("skip", "warn", "fail"):
        raise ValueError(f"{path}: unmatched: {shown(unmatched)} (allowed: skip, warn, fail)")
    other_shapes = table.get("other_shapes", "skip")
    if other_shapes not in ("skip", "fail"):
        raise ValueError(f"{path}: other_shapes: {shown(other_shapes)} (allowed: skip, fail)")
    inherited = table.get("inherited", 10)
    if not is_limit(inherited) or inherited < 1:
        raise ValueError(f"{path}: inherited: {shown(inherited)} (allowed: a number of at least 1)")
    rule = _rule(table, path)
    try:
        required = _read_required(table.get("require", []), own_metrics)
    except ValueError as error:
        raise ValueError(f"{path}: require: {error}") from None
    name = source if source in _BUILT_IN else path.stem
    return ComparePolicy(
        name,
        rule,
        float(inherited),
        cast("Literal['skip', 'warn', 'fail']", unmatched),
        cast("Literal['skip', 'fail']", other_shapes),
        required,
    )


def _rule(table: Mapping[str, Any], path: Path) -> RowRule:
    name = table["rule"]
    if not isinstance(name, str) or name not in RULES:
        raise ValueError(f"{path}: {unknown('rule', name, RULES)}")
    limits = table.get("limits")
    if not isinstance(limits, dict) or not all(map(_are_limits, limits.values())):
        raise ValueError(
            f"{path}: limits: {shown(limits)} (allowed: a mapping to numbers, 0 or above, or lists of them)"
        )
    for key in ("exempt_apis", "exempt_from_growth"):
        apis = table.get(key, [])
        if not isinstance(apis, list) or not all(isinstance(api, str) for api in apis):
            raise ValueError(f"{path}: {key}: {shown(apis)} (allowed: a list of APIs)")
    try:
        return RULES[name](table)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: limits: {shown(limits)} do not fit rule {name!r}: {error!r}") from None


def _are_limits(value: object) -> bool:
    return all(map(is_limit, value)) if isinstance(value, list) else is_limit(value)


def _read_required(written: object, own: Iterable[str]) -> tuple[RequiredMetric, ...]:
    """Return what the key ``require`` of a policy holds; ``own`` are the names of the user's metrics.

    Raises ValueError that says what is wrong.
    """
    if not isinstance(written, list):
        raise ValueError(f"{shown(written)} (allowed: a list of requirements, such as own_metric <= 0.1)")
    names = sorted(BUILT_IN_METRICS | {*own})
    return tuple(_required(requirement, names) for requirement in written)


def _required(written: object, names: Sequence[str]) -> RequiredMetric:
    match = _REQUIREMENT.fullmatch(written) if isinstance(written, str) else None
    try:
        limit = float(match[3]) if match else math.nan
    except ValueError:
        limit = math.nan
    if match is None or math.isnan(limit):
        raise ValueError(f"{shown(written)} (allowed: a metric, one of <= >= < >, and a number)")
    if match[1] not in names:
        raise ValueError(
            f"{unknown('metric', match[1], names)}; register your own by pytest_msprobe_register_compare_metrics"
        )
    return RequiredMetric(match[1], match[2], limit)
