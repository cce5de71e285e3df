"""Recording that a program switches on and off by its ``config.json``: the key ``dump_enable`` of msprobe 26.2.

Where the file has the key as a ``PrecisionDebugger`` is made, it is read again at each ``start``, ``stop`` and ``step``
once it has changed. Of what has changed, ``dump_enable`` alone is followed. A file that cannot be read turns recording
off, with a warning, as a program may be writing it.
Key of ``config.json``: ``dump_enable``. It has no public name and adds no command.
Files: none.
Without it ``dump_enable`` is refused.
Take it out by deleting this folder and tests/extensions/dump_switch.

Importing its modules loads msgspec.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.recording.config import read_common
from msprobe_hooks.recording.validators import flag

_KEY = "dump_enable"

_log = logging.getLogger("msprobe_hooks")


def open_switch(config_path: str | Path | None, common: Mapping[str, Any]) -> DumpSwitch | None:
    """Return the switch that a ``config.json`` has. Raises ConfigError where its value is neither true nor false."""
    if config_path is None or common.get(_KEY) is None:
        return None
    return DumpSwitch(Path(config_path), common)


class DumpSwitch:
    """A switch that is on or off as ``config.json`` last said."""

    def __init__(self, path: Path, common: Mapping[str, Any]) -> None:
        self.is_on: bool = flag(_KEY, common[_KEY])
        self._path = path
        self._others = _without_key(common)
        self._stamp = _stamp(path)

    def read_again(self) -> bool:
        """Read the file if it has changed, and return whether the switch has changed."""
        stamp = _stamp(self._path)
        if stamp is None or stamp == self._stamp:
            return False
        self._stamp, was_on = stamp, self.is_on
        try:
            common = read_common(self._path)
            # A program that deletes the key leaves the switch as it is.
            self.is_on = self.is_on if common.get(_KEY) is None else flag(_KEY, common[_KEY])
        except ConfigError as error:
            _log.warning("%s: recording is off until the file can be read: %s", self._path, error)
            self.is_on = False
            return was_on
        others = _without_key(common)
        if others != self._others:
            self._others = others
            _log.warning("%s: of what has changed, %s alone is followed", self._path, _KEY)
        return self.is_on != was_on


def _without_key(common: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in common.items() if key != _KEY}


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return what changes as a file is written, None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
