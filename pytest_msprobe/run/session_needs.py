"""Conditions under which a run of pytest has something of this plugin, and loads it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from pytest_msprobe.run.mode import destination, modes_of

# Every other fixture, marker, option and setting of ours, and of our extensions, begins with it.
_OURS = "msprobe_"
_FIXTURE, _MARKER = "precision", "precision_standard"


def needs_session(config: pytest.Config) -> bool:
    """Return whether the command line or the ini file has an option, a setting or a dump, or whether xdist takes part.

    A controller collects no tests, so that it learns too late what they use.
    """
    given = vars(config.option)
    return (
        hasattr(config, "workerinput")
        or any(value not in (None, False, [], "") for name, value in given.items() if name.startswith(_OURS))
        or any(given.get(destination(mode.flag)) for mode in modes_of(config))
        or any(key.startswith(_OURS) for key in config.option.override_ini or ())
        or (config.inipath is not None and _OURS.encode() in config.inipath.read_bytes())
        or any(".json" in argument for argument in config.args)
        or bool(given.get("numprocesses"))
        or bool(given.get("tx"))
    )


def uses_session(items: Iterable[pytest.Item]) -> bool:
    """Return whether a test uses a fixture or has a marker of this plugin."""
    return any(
        any(name == _FIXTURE or name.startswith(_OURS) for name in getattr(item, "fixturenames", ()))
        or any(marker.name == _MARKER or marker.name.startswith(_OURS) for marker in item.iter_markers())
        for item in items
    )
