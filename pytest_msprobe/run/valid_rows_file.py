"""Operations of the user's with undefined rows, from a YAML file of ours or of msprobe 26; readers of such files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from msprobe_hooks.dump.effects import GROUP_ENDS, GROUP_SIZES, ValidRows, operation_effects
from msprobe_hooks.regular_files import read_regular
from msprobe_standards.validation import shown
from pytest_msprobe.errors import RulesError, UserError


def read_yaml_rules(path: Path, error: type[UserError]) -> Any:
    """Return what a YAML file holds. Raises ``error`` where it cannot be read or is not YAML."""
    from msprobe_standards.decoding import YamlError, decode_yaml

    try:
        return decode_yaml(read_regular(path))
    except OSError as failure:
        raise error(f"cannot be read: {failure.strerror}", file=path) from None
    except YamlError as failure:
        raise error(str(failure), file=path) from None


_KEY, _HANDLERS = "valid_rows", ("acc_check_handlers", "compare_handlers")
_HANDLER = re.compile(r"(?:.*/)?builtin_handlers\.py:(?:postprocess|extract_valid_len)_by_(group_list|group_index)")
_FORM = f"{{argument: NAME, holds: {GROUP_ENDS} or {GROUP_SIZES}}}"


def read_valid_rows(path: Path) -> dict[str, ValidRows]:
    """Return what says how many rows are defined, by operation. Raises RulesError."""
    content = read_yaml_rules(path, RulesError)
    if not isinstance(content, dict) or not content or not content.keys() <= {_KEY, *_HANDLERS}:
        expected = f"expected {_KEY}, or msprobe's {' and '.join(_HANDLERS)}"
        raise RulesError(f"not a file of valid rows; {expected}", file=path)
    rows = {api: _rows(api, entry, path) for api, entry in _mapping(content.get(_KEY), path, _KEY).items()}
    for key in _HANDLERS:
        for side, handlers in _mapping(content.get(key), path, key).items():
            for api, handler in _mapping(handlers, path, f"{key}.{side}").items():
                # What is built in knows whether the list holds ends or sizes.
                if operation_effects(api).valid_rows is None:
                    rows[api] = _by_handler(handler, f"{path}: {key}.{side}.{api}")
    return rows


def _mapping(value: Any, path: Path, key: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise RulesError(f"{key} is {shown(value)}", file=path, remedy="expected a mapping by the API's name")
    return value


def _rows(api: str, entry: Any, path: Path) -> ValidRows:
    if not isinstance(entry, dict) or not entry.keys() <= {"argument", "holds"}:
        raise RulesError(f"{_KEY}.{api} is {shown(entry)}", file=path, remedy=f"expected {_FORM}")
    argument, holds = entry.get("argument"), entry.get("holds", GROUP_SIZES)
    if not isinstance(argument, str) or holds not in (GROUP_ENDS, GROUP_SIZES):
        raise RulesError(f"{_KEY}.{api} is {shown(entry)}", file=path, remedy=f"expected {_FORM}")
    return ValidRows(argument, holds=holds)


def _by_handler(handler: Any, where: str) -> ValidRows:
    match = _HANDLER.fullmatch(handler) if isinstance(handler, str) else None
    if match is None:
        remedy = f"expected one of msprobe's own, or {_KEY} with {_FORM}: a file's code is not run"
        raise RulesError(f"handler {shown(handler)}", file=where, remedy=remedy)
    return ValidRows(match[1], holds=GROUP_SIZES)
