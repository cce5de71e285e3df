"""The fast path through pytest: what judged items are spared of it, all of which one ini setting turns off."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ini setting."""
    from pytest_msprobe.extensions.fast_path.options import add_setting

    add_setting(parser)


def pytest_msprobe_session(config: pytest.Config) -> None:
    """Register the plugins of the fast path."""
    from pytest_msprobe.extensions.fast_path.fast_hooks import SessionHooks, register
    from pytest_msprobe.extensions.fast_path.switch import read_setting

    read_setting(config)
    register(config)
    config.pluginmanager.register(SessionHooks(), "msprobe-fast-path")
