"""A run's workers on other hosts: what they find there, what they are sent and what they send back."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting."""
    from pytest_msprobe.extensions.hosts.options import add_options
    from pytest_msprobe.run.option_groups import DEVICES, option_group

    add_options(option_group(parser, DEVICES))


def pytest_msprobe_session(config: pytest.Config) -> None:
    """Register what starts workers on other hosts."""
    from pytest_msprobe.extensions.hosts.host_workers import HostWorkers

    config.pluginmanager.register(HostWorkers(), "msprobe-host-workers")
