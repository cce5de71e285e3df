"""Rules of the user's that say where inf and nan mean nothing, in the form of msprobe's ``ignore_nan_inf``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msprobe_hooks.extensions.overflow.anomaly import BUILT_IN, IgnoreRule, IgnoreRules
from msprobe_standards.validation import shown
from pytest_msprobe.errors import RulesError
from pytest_msprobe.run.valid_rows_file import read_yaml_rules

_KEY = "ignore_nan_inf"
_MOST_ARGUMENTS = 10**6  # a choice: no call has so many; any larger index is a mistake
_RULE_KEYS = ("api_name", "description", "input_ignore", "output_ignore")


def load_rules(path: Path | None = None) -> IgnoreRules:
    """Return the built-in rules by the API's name in small letters, and those of a file, which replace theirs.

    Raises RulesError.
    """
    return BUILT_IN if path is None else {**BUILT_IN, **_read(path)}


def _read(path: Path) -> dict[str, IgnoreRule]:
    content = read_yaml_rules(path, RulesError)
    entries = content.get(_KEY) if isinstance(content, dict) else None
    if not isinstance(entries, list) or (isinstance(content, dict) and set(content) != {_KEY}):
        raise RulesError(f"not a file of rules; expected one key, {_KEY}, with a list of rules", file=path)
    return dict(_rule(entry, f"{path}: {_KEY}[{i}]") for i, entry in enumerate(entries))


def _rule(entry: Any, where: str) -> tuple[str, IgnoreRule]:
    if not isinstance(entry, dict):
        raise RulesError(f"not a rule; expected the keys {', '.join(_RULE_KEYS)}", file=where)
    for key in entry:
        if key not in _RULE_KEYS:
            from pytest_msprobe.errors import unknown

            raise RulesError(unknown("key", key, _RULE_KEYS), file=where)
    name = entry.get("api_name")
    if not isinstance(name, str) or "." not in name:
        raise RulesError(f"api_name is {shown(name)}", file=where, remedy="expected type and name, such as torch.empty")
    inputs = _positions(entry, "input_ignore", where, ("index", "name"))
    return name.lower(), IgnoreRule(inputs, _positions(entry, "output_ignore", where, ("index",)))


def _positions(entry: Mapping[str, Any], key: str, where: str, allowed: tuple[str, ...]) -> frozenset[str]:
    items = entry.get(key)
    if items is None:
        return frozenset()
    expected = " or ".join(f"{{{name}: ...}}" for name in allowed)
    if not isinstance(items, list):
        raise RulesError(f"{key} is {shown(items)}", file=where, remedy=f"expected a list of {expected}")
    return frozenset(_position(item, f"{where}: {key}", expected, allowed) for item in items)


def _position(item: Any, where: str, expected: str, allowed: tuple[str, ...]) -> str:
    if isinstance(item, dict) and len(item) == 1:
        ((kind, value),) = item.items()
        if kind == "index" and type(value) is int and 0 <= value < _MOST_ARGUMENTS:
            return str(value)
        if kind == "name" and kind in allowed and isinstance(value, str):
            return value
    raise RulesError(shown(item), file=where, remedy=f"expected {expected}, an index counting from 0")
