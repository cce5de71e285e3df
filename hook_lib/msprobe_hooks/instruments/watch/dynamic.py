"""The configuration that is changed while a training runs."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

from msprobe_hooks.decoding import JsonError, decode_json
from msprobe_hooks.errors import ConfigError
from msprobe_hooks.instruments.watch.config import Plan

_log = logging.getLogger("msprobe_hooks")


# In place of the time when a file was written.
_GONE = -1


class DynamicSwitch:
    """Looks at a configuration file when a step has ended; it counts while its ``dynamic_on`` is true.

    ``read`` returns the plan of a file and warnings, or raises ConfigError.
    """

    def __init__(self, path: Path, read: Callable[[Path], tuple[Plan, list[str]]]) -> None:
        self._path = path
        self._read = read
        self._seen: int | None = None

    def changed(self) -> Plan | None:
        """Return the plan of a file that was written since the last look and is on.

        None for any other; what is wrong with one, as that it is gone, is logged once.
        """
        try:
            written = self._path.stat().st_mtime_ns
        except OSError:
            written = _GONE
        if written == self._seen:
            return None
        self._seen = written
        try:
            plan, warnings = self._read(self._path)
        except ConfigError as error:
            _log.error("%s is not followed, what was watched before still is: %s", self._path, error)
            return None
        for warning in warnings if plan.is_dynamic else ():
            _log.warning("%s: %s", self._path, warning)
        return plan if plan.is_dynamic else None

    def turn_off(self) -> None:
        """Write ``dynamic_on`` false into the file, the rest of which stays."""
        try:
            given = decode_json(self._path.read_bytes()) | {"dynamic_on": False}
            beside = self._path.with_name(f"{self._path.name}.new")
            beside.write_text(json.dumps(given, indent=2))
            beside.chmod(self._path.stat().st_mode)
            beside.replace(self._path)
        except (OSError, JsonError, TypeError) as error:
            _log.error("%s: dynamic_on cannot be set to false: %s", self._path, error)
