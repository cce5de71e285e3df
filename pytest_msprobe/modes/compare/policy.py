"""The standards for compared runs: tables in YAML, read and checked here, and the rules that they name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import yaml

from pytest_msprobe.modes.compare.rules import RULES, RowRule

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Users type the names that the policies for checks have too; a file's name says which kind of run it is for.
_BUILT_IN = {
    file.stem.removeprefix("compare-"): file for file in (Path(__file__).parent / "policies").glob("compare-*.yaml")
}
_KEYS = ("rule", "limits", "inherited", "unmatched", "exempt_apis", "exempt_from_growth")


@dataclass(frozen=True)
class ComparePolicy:
    """A standard for compared runs.

    ``inherited`` is how many times the error of its inputs a call may show without being their culprit,
    ``unmatched`` what comes of a call without partner.
    """

    name: str
    rule: RowRule
    inherited: float
    unmatched: Literal["skip", "warn", "fail"]


def load_policy(source: str) -> ComparePolicy:
    """Load a built-in policy by name, or one from a YAML file.

    Raises ValueError that names file, key, value and what is allowed.
    """
    path = Path(source) if source.endswith((".yaml", ".yml")) else _BUILT_IN.get(source)
    known = f"(known: {', '.join(sorted(_BUILT_IN))}, or the path of a .yaml file)"
    if path is None:
        raise ValueError(f"unknown policy {source!r} {known}")
    try:
        table = yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)
    except FileNotFoundError:
        raise ValueError(f"unknown policy {source!r} {known}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: cannot be read as YAML: {error}") from None
    if not isinstance(table, dict) or "rule" not in table:
        raise ValueError(f"{path}: a policy for compared runs is a mapping with 'rule' and the keys {', '.join(_KEYS)}")
    for key in table:
        if key not in _KEYS:
            raise ValueError(f"{path}: unknown key {key!r} (allowed: {', '.join(_KEYS)})")
    unmatched = table.get("unmatched", "skip")
    if unmatched not in ("skip", "warn", "fail"):
        raise ValueError(f"{path}: unmatched: {unmatched!r} (allowed: skip, warn, fail)")
    inherited = table.get("inherited", 10)
    if not isinstance(inherited, (int, float)) or inherited < 1:
        raise ValueError(f"{path}: inherited: {inherited!r} (allowed: a number of at least 1)")
    rule = _rule(table, path)
    name = source if source in _BUILT_IN else path.stem
    return ComparePolicy(name, rule, float(inherited), cast("Literal['skip', 'warn', 'fail']", unmatched))


def _rule(table: Mapping[str, Any], path: Path) -> RowRule:
    name = table["rule"]
    if name not in RULES:
        raise ValueError(f"{path}: rule: {name!r} (allowed: {', '.join(RULES)})")
    try:
        return RULES[name](table)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: limits: {table.get('limits')!r} do not fit rule {name!r}: {error!r}") from None
