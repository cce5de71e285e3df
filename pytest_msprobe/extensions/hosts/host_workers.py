"""Start of workers on other hosts, as xdist starts its own."""

from __future__ import annotations

import pytest


class HostWorkers:
    """The hook of xdist, which may not be installed."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, config: pytest.Config) -> None:
        """Start workers on other hosts as well."""
        from pytest_msprobe.extensions.hosts.remote_hosts import start_remote_workers
        from pytest_msprobe.run.usage_errors import usage_errors

        with usage_errors():
            start_remote_workers(config)
