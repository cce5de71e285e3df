"""Checks of the monitor's options: each takes a key and its value, and returns the value as it is used.

Each raises ConfigError that names the key, the value and what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from msprobe_hooks.errors import ConfigError, unknown_name
from msprobe_hooks.extensions.monitor.series.paths import start_order
from msprobe_hooks.extensions.monitor.watch.quantities import STATISTICS

FIELDS: Final = ("input", "output", "input_grad", "output_grad")

_SPEC = re.compile(r"tensor|tuple\[(\d+)\](?::(\d+))?")


def whole_number(least: int, most: int | None = None) -> Callable[[str, object], int]:
    """Return a check for whole numbers from the least to the most, where there is one."""

    def check(key: str, value: object) -> int:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if not is_whole or value < least or (most is not None and value > most):  # type: ignore[operator]
            end = "" if most is None else f" to {most}"
            raise ConfigError(key, value, f"an integer from {least}{end}" if most else f"an integer >= {least}")
        return value  # type: ignore[return-value]

    return check


def size(key: str, value: object) -> float:
    """Return a finite number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise ConfigError(key, value, "a number >= 0")
    return float(value)


def names_of(allowed: tuple[str, ...]) -> Callable[[str, object], tuple[str, ...]]:
    """Return a check for lists of names, each of which counts once."""

    def check(key: str, value: object) -> tuple[str, ...]:
        if not isinstance(value, (list, tuple)):
            raise ConfigError(key, value, "a list of " + ", ".join(allowed))
        for name in value:
            if name not in allowed:
                raise ConfigError(key, name, ", ".join(allowed), known=allowed)
        return tuple(dict.fromkeys(value))

    return check


def checked_statistics(key: str, value: object) -> tuple[str, ...]:
    """Return statistics by name; none of them means the norm."""
    return names_of(STATISTICS)(key, value) or ("norm",)


def ranks(key: str, value: object) -> frozenset[int]:
    """Return a list of ranks as a set."""
    if not isinstance(value, (list, tuple)):
        raise ConfigError(key, value, "a list of ranks")
    return frozenset(whole_number(0)(key, rank) for rank in value)


def targets(key: str, value: object) -> Mapping[str, Mapping[str, str]]:
    """Return modules with their fields, each with the element that is meant."""
    if not isinstance(value, Mapping):
        raise ConfigError(key, value, 'an object such as {"layers.0": {"input": "tensor"}}')
    for name, fields in value.items():
        if not isinstance(fields, Mapping):
            raise ConfigError(f"{key}.{name}", fields, 'an object such as {"input": "tensor"}')
        for one, spec in fields.items():
            if one not in FIELDS:
                raise unknown_name(f"{key}.{name} has no key", one, spec, FIELDS)
            if not _is_spec(spec):
                raise ConfigError(f"{key}.{name}.{one}", spec, "tensor, tuple[n], or tuple[n]:i with i < n")
    return value


def _is_spec(spec: object) -> bool:
    found = _SPEC.fullmatch(spec) if isinstance(spec, str) else None
    return found is not None and (found[1] is None or int(found[2] or 0) < int(found[1]))


def selected(spec: str) -> tuple[int, int] | None:
    """Return length and index that ``tuple[n]:i`` names, None for ``tensor``."""
    found = _SPEC.fullmatch(spec)
    return None if found is None or found[1] is None else (int(found[1]), int(found[2] or 0))


def times(key: str, value: object) -> tuple[str, str] | None:
    """Return the first and the last time of folders; None for an empty list."""
    try:
        starts = [(start_order(time), time) for time in value]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        starts = []
    if len(starts) == 2 and starts == sorted(starts):
        return starts[0][1], starts[1][1]
    if value == []:
        return None
    raise ConfigError(key, value, 'the first and the last time of folders, as in ["Dec03_00-00-00", "Dec03_21-34-40"]')
