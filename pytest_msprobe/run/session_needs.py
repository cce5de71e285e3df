"""Conditions under which a run of pytest has something of this plugin, and loads it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from pytest_msprobe.run.mode import destination, modes_of

# Every other fixture, marker, option and setting of ours, and of our extensions, begins with it.
_OURS = "msprobe_"
_SETTING = re.compile(rb"^\s*\"?msprobe_\w+\"?\s*[=:]", re.MULTILINE)
_SESSION = "msprobe-session"
# Where recorders put a dump below the folder that they are given.
_RECORDINGS = ("dump.json", "rank*/dump.json", "step*/rank*/dump.json")
_FIXTURE, _MARKER = "precision", "precision_standard"


def needs_session(config: pytest.Config) -> bool:
    """Return whether the command line or the ini file has an option, a setting or a dump, or whether xdist takes part.

    A controller collects no tests, so that it learns too late what they use.
    """
    options = vars(config.option)
    return (
        hasattr(config, "workerinput")
        or any(value not in (None, False, [], "") for name, value in options.items() if name.startswith(_OURS))
        or any(options.get(destination(mode.flag)) for mode in modes_of(config))
        or any(key.startswith(_OURS) for key in config.option.override_ini or ())
        or (config.inipath is not None and _SETTING.search(config.inipath.read_bytes()) is not None)
        or any(".json" in argument for argument in config.args)
        or bool(options.get("numprocesses"))
        or bool(options.get("tx"))
    )


def has_session(config: pytest.Config) -> bool:
    """Return whether the hooks of the session are registered."""
    return config.pluginmanager.hasplugin(_SESSION)


def register_own(config: pytest.Config) -> None:
    """Register the modes of the core and every extension, once; their options are there already."""
    from pytest_msprobe import session_plugin

    session_plugin.register_own(config)


def start_session(config: pytest.Config) -> None:
    """Register the hooks of the session; pytest calls their ``pytest_configure`` at once."""
    if not has_session(config):
        from pytest_msprobe import session_plugin

        config.pluginmanager.register(session_plugin, _SESSION)


def start_session_of_test(request: pytest.FixtureRequest) -> None:
    """Start the session where a test asks for a fixture by ``getfixturevalue``, which collection cannot see."""
    if not has_session(request.config):
        start_session(request.config)
        from pytest_msprobe.run.test_checks import begin

        # A fixture of the session has no public name for the test that asks for it first.
        begin(request._pyfuncitem)


def recordings_without_option(config: pytest.Config, items: Iterable[pytest.Item]) -> list[str]:
    """Return a line for each folder among the arguments that holds recordings, and of which nothing was collected."""
    named = config.args if config.args_source is pytest.Config.ArgsSource.ARGS else ()
    # Items have paths without `..`.
    folders = {text: Path(os.path.normpath(config.invocation_params.dir / text)) for text in named}
    paths = {item.path for item in items}
    return [
        f"msprobe: {text} holds recordings, which pytest reads where an option names them: --msprobe-dump {text}"
        for text, folder in folders.items()
        if not any(path.is_relative_to(folder) for path in paths) and _holds_recordings(folder)
    ]


def _holds_recordings(folder: Path) -> bool:
    # The name of a test may be too long for a path, and a folder closed.
    with suppress(OSError):
        return any(next(folder.glob(pattern), None) for pattern in _RECORDINGS)
    return False


def uses_session(items: Iterable[pytest.Item]) -> bool:
    """Return whether a test uses a fixture or has a marker of this plugin."""
    return any(
        any(name == _FIXTURE or name.startswith(_OURS) for name in getattr(item, "fixturenames", ()))
        or any(marker.name == _MARKER or marker.name.startswith(_OURS) for marker in item.iter_markers())
        for item in items
    )
