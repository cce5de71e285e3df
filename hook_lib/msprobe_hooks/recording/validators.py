"""Options checked one by one: each check takes the key and its value, and returns the value as it is used.

Every mistake is a ConfigError that names the key, the value and what is allowed.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from msprobe_hooks.errors import ConfigError, unknown_name
from msprobe_hooks.json_decoding import JsonError, decode_json
from msprobe_hooks.messages import parse_size
from msprobe_hooks.regular_files import read_regular

_MAX_NUMBER = 1_000_000


def read_json(path: str | Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raises ConfigError."""
    if not isinstance(path, (str, Path)) or not str(path).endswith(".json"):
        raise ConfigError("config_path", path, "the path of a .json file")
    try:
        content = decode_json(read_regular(path))
    except FileNotFoundError:
        raise _unusable(path, "does not exist") from None
    except OSError as error:
        raise _unusable(path, f"cannot be read: {error.strerror}") from None
    except JsonError as error:
        problem = str(error).replace("the JSON ends", "not valid JSON: it ends")
        raise _unusable(path, f"is {problem}") from None
    if not isinstance(content, dict):
        raise _unusable(path, "is not a JSON object, as in {...}")
    return content


def _unusable(path: str | Path, problem: str) -> ConfigError:
    return ConfigError(
        "config_path", str(path), "a file with one JSON object", problem=f"config_path: {path} {problem}"
    )


def object_with(names: Collection[str], also: Collection[str] = ()) -> Callable[[str, object], Mapping[str, Any]]:
    """Return the check for an object with some keys; those of ``also`` are taken too, and not offered."""

    def check(key: str, value: object) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise ConfigError(key, value, "an object with the keys " + ", ".join(names))
        for name in value:
            if name not in names and name not in also:
                raise unknown_name(f"{key} has no key", name, value[name], names)
        return value

    return check


def one_of(allowed: tuple[str, ...]) -> Callable[[str, object], str]:
    """Return the check for one of some words."""

    def check(key: str, value: object) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise ConfigError(key, value, ", ".join(allowed), known=allowed)
        return value

    return check


def flag(key: str, value: object) -> bool:
    """Take true or false."""
    if not isinstance(value, bool):
        raise ConfigError(key, value, "true or false")
    return value


def size(key: str, value: object) -> int:
    """Take bytes, as a number or as ``10GiB``."""
    number = parse_size(str(value)) if isinstance(value, (int, str)) and not isinstance(value, bool) else None
    if not number:
        raise ConfigError(key, value, "a size above 0, such as 10GiB")
    return number


def seconds(key: str, value: object) -> float:
    """Take a finite number of seconds from 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ConfigError(key, value, "a number of seconds from 0")
    return float(value)


def path(key: str, value: object) -> Path:
    """Take the path of a folder, which need not exist."""
    if not isinstance(value, (str, Path)) or not str(value).strip() or not _is_possible(str(value)):
        raise ConfigError(key, value, "the path of a folder")
    return Path(value)


def _is_possible(path: str) -> bool:
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False


def names(key: str, value: object) -> tuple[str, ...]:
    """Take names, or parts of names."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) and name for name in value):
        raise ConfigError(key, value, "a list of names, or of parts of names")
    return tuple(value)


_RANGE_TEXT = 'a list of numbers from 0 to 1000000 and ranges such as "3-5"'


def numbers(key: str, value: object) -> frozenset[int] | None:
    """Read ``[0, 2, "4-6"]``; an empty list means all."""
    if isinstance(value, frozenset):
        value = sorted(value)
    if not isinstance(value, (list, tuple)):
        raise ConfigError(key, value, _RANGE_TEXT)
    return frozenset(number for item in value for number in _expand(key, item)) or None


def _expand(key: str, item: object) -> Iterable[int]:
    if isinstance(item, int) and not isinstance(item, bool) and 0 <= item <= _MAX_NUMBER:
        return (item,)
    ends = re.fullmatch(r"(\d+)(?:-(\d+))?", item) if isinstance(item, str) else None
    if ends is not None:
        first, last = int(ends[1]), int(ends[2] or ends[1])
        if first <= last <= _MAX_NUMBER:
            return range(first, last + 1)
    raise ConfigError(key, item, _RANGE_TEXT)
