"""Configuration of a gradient probe: ``grad_probe`` of msprobe's ``config.json``, and our ``sign_format``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.recording import validators as checks

TASK: Final = "grad_probe"
LEVELS: Final = ("L0", "L1", "L2")
SIGN_FORMATS: Final = ("bool", "packed")

_INT64 = 2**63


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """A checked configuration. ``None`` for ``rank`` or ``step``, and no names in ``param_list``, mean all of them.

    ``bounds`` part the real numbers into intervals, each with its upper bound.
    """

    dump_path: Path = Path("./dump_path")
    rank: frozenset[int] | None = None
    step: frozenset[int] | None = None
    grad_level: str = "L1"
    param_list: tuple[str, ...] = ()
    bounds: tuple[int | float, ...] = (-1, 0, 1)
    sign_format: str = "bool"

    @property
    def task(self) -> str:
        """The task, as of any configuration."""
        return TASK

    @property
    def level(self) -> str:
        """The default level of a recording: gradients have none."""
        return "L1"

    @property
    def keeps_checksums(self) -> bool:
        """Return whether the MD5 of each gradient is written."""
        return self.grad_level == "L0"

    @property
    def keeps_signs(self) -> bool:
        """Return whether sign maps are written."""
        return self.grad_level != "L0"

    @property
    def counts_intervals(self) -> bool:
        """Return whether the share of elements in each interval is written."""
        return self.grad_level == "L2"


def probe_settings(common: Mapping[str, Any], **overrides: Any) -> ProbeSettings:
    """Check the content of a ``config.json``, of which ``overrides`` that are not None win. Raises ConfigError."""
    section = checks.object_with(_SECTION)(TASK, common.get(TASK) or {})
    shared = {field.name for field in fields(ProbeSettings)} - _SECTION.keys()
    raw = {key: common[key] for key in common if key in shared}
    raw |= {key: value for key, value in overrides.items() if value is not None}
    checked = {key: _COMMON[key](key, value) for key, value in raw.items() if value is not None}
    checked |= {key: _SECTION[key](f"{TASK}.{key}", value) for key, value in section.items() if value is not None}
    return ProbeSettings(**checked)


def _parameters(key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise ConfigError(key, value, 'a list of names of parameters, such as ["fc.weight"]')
    return tuple(value)


def _bounds(key: str, value: object) -> tuple[int | float, ...]:
    allowed = "a list of ascending numbers within int64, such as [-1, 0, 1]"
    if not isinstance(value, list):
        raise ConfigError(key, value, allowed)
    for bound in value:
        if isinstance(bound, bool) or not isinstance(bound, (int, float)) or not -_INT64 <= bound < _INT64:
            raise ConfigError(key, bound, allowed)
    if any(left >= right for left, right in pairwise(value)):
        raise ConfigError(key, value, allowed)
    return tuple(value)


_COMMON: Mapping[str, Any] = {"dump_path": checks.path, "rank": checks.numbers, "step": checks.numbers}
_SECTION: Mapping[str, Any] = {
    "grad_level": checks.one_of(LEVELS),
    "param_list": _parameters,
    "bounds": _bounds,
    "sign_format": checks.one_of(SIGN_FORMATS),
}
