"""``msprobe_fast_path``: whether judged items take the fast path, and the private names of pytest that it needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module

import pytest

from pytest_msprobe.run.item_bases import fast_path_key, preselect_key
from pytest_msprobe.run.option_fields import read_fields, setting

#: Each as ``module:name`` or ``module:class.attribute``; only instances may have the attribute.
PRIVATE_NAMES = (
    "_pytest.logging:LoggingPlugin.formatter",
    "_pytest.main:FSHookProxy.remove_mods",
    "_pytest.mark.structures:NodeKeywords._markers",
    "_pytest.nodes:Item._report_sections",
    "_pytest.runner:call_and_report",
    "_pytest.skipping:pytest_runtest_call",
    "_pytest.terminal:TerminalReporter._add_stats",
    "_pytest.terminal:TerminalReporter.pytest_collectreport",
    "pluggy:PluginManager._inner_hookexec",
)
#: What pytest's own plugins are registered as. A user may turn any of them off.
PLUGIN_NAMES = ("logging-plugin", "terminalreporter")


def missing_names(names: Iterable[str]) -> list[str]:
    """Return those of the names that the installed pytest lacks."""
    return [name for name in names if not _exists(name)]


def _exists(name: str) -> bool:
    module, _, path = name.partition(":")
    owner, _, attribute = path.partition(".")
    try:
        owned = getattr(import_module(module), owner)
    except (ImportError, AttributeError):
        return False
    return not attribute or hasattr(owned, attribute) or attribute in owned.__init__.__code__.co_names


@dataclass(frozen=True, slots=True)
class FastPathOptions:
    """The setting of the fast path."""

    is_wanted: bool = setting(
        "msprobe_fast_path",
        "skip the hooks of pytest that have no effect on items of dumps (default: true)",
        kind="bool",
        default=True,
    )


def read_setting(config: pytest.Config) -> None:
    """Keep whether the fast path is on. It is off, with a warning, where pytest lacks a private name that it needs.

    Raises OptionError for a setting that is neither true nor false.
    """
    is_wanted = read_fields(config, FastPathOptions).is_wanted
    missing = missing_names(PRIVATE_NAMES) if is_wanted else []
    if missing:
        text = f"msprobe_fast_path is off: pytest {pytest.__version__} lacks {', '.join(missing)}"
        config.issue_config_time_warning(pytest.PytestConfigWarning(text), stacklevel=2)
    config.stash[fast_path_key] = is_wanted and not missing


class SessionHooks:
    """Work of a session for the fast path, whether it is on or not."""

    def pytest_collection_modifyitems(self, session: pytest.Session) -> None:
        """Count what ``-k`` has left out before items were made."""
        from pytest_msprobe.extensions.fast_path.preselection import report_preselection

        report_preselection(session)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Forget hooks that were looked up early: no further ``conftest.py`` will come."""
        from pytest_msprobe.run.item_bases import forget_hooks

        forget_hooks(session.config)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Leave out what other plugins say of nothing, which takes them long."""
        if session.config.stash[fast_path_key]:
            from pytest_msprobe.extensions.fast_path.left_out_hooks import leave_out_hypothesis_summary

            leave_out_hypothesis_summary(session.config)


def register(config: pytest.Config) -> None:
    """Register the plugins of the fast path, where it is on."""
    if config.stash[fast_path_key]:
        # Modules that import private names of pytest, which are there.
        from pytest_msprobe.extensions.fast_path.fast_protocol import FastProtocol
        from pytest_msprobe.extensions.fast_path.left_out_hooks import register_log_capture
        from pytest_msprobe.extensions.fast_path.preselection import RankFolders, preselect
        from pytest_msprobe.run.reporting import attach_start

        config.stash[preselect_key] = preselect
        register_log_capture(config)
        config.pluginmanager.register(RankFolders(config), "msprobe-rank-folders")
        config.pluginmanager.register(FastProtocol(config, attach_start), "msprobe-fast-protocol")
