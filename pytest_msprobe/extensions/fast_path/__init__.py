"""The fast path through pytest: items of dumps skip the hooks that have no effect on them, and are made when asked for.

It takes effect where no other plugin needs more; the ini setting ``msprobe_fast_path`` (default: true) turns it off.
It uses a few private names of pytest, and is off, with a warning, where pytest lacks one (``switch``). Which
records ``-k``, ``--lf`` and ``FILE::NAME`` leave out is known before items are made, and of thousands of ranks only
those are looked at that are named (``preselection``). It writes no file.

Take it out by deleting this folder and tests/extensions/fast_path; items then take pytest's own path.

Importing its modules loads msgspec and pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

    from pytest_msprobe.run.mode import ModeRegistry


def pytest_msprobe_register_modes(registry: ModeRegistry) -> None:
    """Add the setting, to runs of every mode."""
    from pytest_msprobe.extensions.fast_path.switch import FastPathOptions
    from pytest_msprobe.run.option_data import HOW

    registry.add_options(FastPathOptions, HOW)


def pytest_msprobe_session(config: pytest.Config) -> None:
    """Register the plugins of the fast path."""
    from pytest_msprobe.extensions.fast_path.switch import SessionHooks, read_setting, register

    read_setting(config)
    register(config)
    config.pluginmanager.register(SessionHooks(), "msprobe-fast-path")
