"""The key ``load`` of msprobe's ``config.json``: modules of the program get the inputs that a dump recorded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.recording import validators

_KEYS = ("path", "modules", "step", "rank", "dump_after_load")


@dataclass(frozen=True, slots=True)
class Load:
    """What ``load`` asks for: inputs for ``modules`` from ``path``, in some steps and ranks, None for all.

    Where ``is_recorded`` is false, the calls are fed and nothing is recorded.
    """

    path: Path
    modules: tuple[str, ...]
    steps: frozenset[int] | None
    ranks: frozenset[int] | None
    is_recorded: bool


def read_load(value: Any) -> Load | None:
    """Check the value of ``load``; None where it is absent or empty. Raises ConfigError."""
    if not value:
        return None
    given = validators.object_with(_KEYS)("load", value)
    for key in ("path", "modules"):
        if not given.get(key):
            raise ConfigError(f"load.{key}", given.get(key), "the folder of a recording" if key == "path" else "names")
    return Load(
        validators.path("load.path", given["path"]),
        validators.names("load.modules", given["modules"]),
        validators.numbers("load.step", given.get("step") or []),
        validators.numbers("load.rank", given.get("rank") or []),
        validators.flag("load.dump_after_load", given.get("dump_after_load", False)),
    )
