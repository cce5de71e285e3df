"""pytest's hooks of every start: options, fixtures and markers are declared, and nothing else is loaded.

A run that has something of this plugin registers `pytest_msprobe.session_plugin` as it is configured, or, where tests
use a fixture or a marker, when they are collected. PYTEST_DONT_REWRITE, as for the whole package.
"""

from __future__ import annotations

from importlib import import_module

import pytest

from pytest_msprobe.fixtures import test_fixtures
from pytest_msprobe.fixtures.test_fixtures import msprobe_dump, msprobe_dump_options, precision
from pytest_msprobe.installed_extensions import modules_at_start
from pytest_msprobe.modes.check.features import register_features
from pytest_msprobe.run.mode import register_modes
from pytest_msprobe.run.option_data import add_groups, add_hints, add_written
from pytest_msprobe.run.session_needs import (
    has_session,
    needs_session,
    recordings_without_option,
    register_own,
    start_session,
    uses_session,
)

__all__ = ["msprobe_dump", "msprobe_dump_options", "precision"]


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Add our option groups, options and ini settings; and those of modes and features of plugins as they come."""

    def is_off(extension: str) -> bool:
        return pluginmanager.is_blocked(f"msprobe.{extension}")

    add_groups(parser)
    add_written(parser, is_off)
    register_modes(pluginmanager, parser)
    register_features(pluginmanager, parser)
    for name, module in modules_at_start().items():
        if not is_off(name):
            pluginmanager.register(import_module(module), f"msprobe.{name}.start")


@pytest.hookimpl(trylast=True)
def pytest_load_initial_conftests(parser: pytest.Parser, args: list[str]) -> None:
    """Add hints to pytest's error, should it refuse an option spelled like ours; conftests have added theirs."""
    add_hints(parser, args)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare our own hooks."""
    # A from-import would ask the package for the name first, and it all extensions.
    import pytest_msprobe.hookspecs

    pluginmanager.add_hookspecs(pytest_msprobe.hookspecs)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Allow workers to be replaced as often as records kill them."""
    if needs_session(config):
        register_own(config)
        from pytest_msprobe.run.xdist_hooks import allow_replacements, isolate_by_worker

        isolate_by_worker(config)
        allow_replacements(config)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Describe the markers, and start what a run with something of this plugin needs, before any worker starts."""
    test_fixtures.register_markers(config)
    if needs_session(config):
        start_session(config)
    elif config.option.markexpr:
        from pytest_msprobe.run import marks

        marks.register(config)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Start it also where tests use a fixture or a marker of this plugin."""
    if not has_session(config) and uses_session(items):
        start_session(config)


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    """Report recordings that were named like tests, with the option that checks them."""
    return recordings_without_option(config, items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Make ``-n auto`` one worker per chosen card."""
    if not needs_session(config):
        return None
    register_own(config)
    from pytest_msprobe.run.usage_errors import usage_errors
    from pytest_msprobe.run.xdist_hooks import worker_count

    with usage_errors():
        return worker_count(config)
