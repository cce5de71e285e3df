"""Plugins of the fast path, registered with the session."""

from __future__ import annotations

import pytest

from pytest_msprobe.run.item_bases import fast_path_key, preselect_key


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


def register(config: pytest.Config) -> None:
    """Register the plugins of the fast path, where it is on."""
    if config.stash[fast_path_key]:
        # Modules that import private names of pytest, which are there.
        from pytest_msprobe.extensions.fast_path.fast_protocol import FastProtocol
        from pytest_msprobe.extensions.fast_path.left_out_hooks import register_log_capture
        from pytest_msprobe.extensions.fast_path.preselection import preselect
        from pytest_msprobe.run.reporting import attach_start

        config.stash[preselect_key] = preselect
        register_log_capture(config)
        config.pluginmanager.register(FastProtocol(config, attach_start), "msprobe-fast-protocol")
