"""Workers of a run on other hosts, which xdist's ``--tx ssh=HOST`` names.

Each gets the files that it needs: dumps when it starts, tensors before the items that read them; what items write
comes back. Its cards are counted apart, and the run goes on without a host that is lost. The option
``--msprobe-host-cache SIZE`` limits what a host keeps of received files, in a folder of its user's cache.

Take it out by deleting this folder and tests/extensions/hosts; workers then run on this host alone.

Importing its modules loads msgspec, pytest and xdist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

    from pytest_msprobe.run.mode import ModeRegistry


def pytest_configure(config: pytest.Config) -> None:
    """Note in a worker on another host what the controller says of it, before anything is read."""
    workerinput = getattr(config, "workerinput", {})
    if "msprobe_elsewhere" in workerinput:
        from pytest_msprobe.extensions.hosts.remote_worker import INPUT, RemoteWorker
        from pytest_msprobe.run.hosts import worker_host_key

        config.stash[worker_host_key] = RemoteWorker(workerinput[INPUT])


def pytest_msprobe_register_modes(registry: ModeRegistry) -> None:
    """Add the setting, to runs of every mode."""
    from pytest_msprobe.extensions.hosts.options import HostOptions
    from pytest_msprobe.run.option_data import DEVICES

    registry.add_options(HostOptions, DEVICES)


def pytest_msprobe_session(config: pytest.Config) -> None:
    """Register what starts workers on other hosts."""
    import pytest

    class HostWorkers:
        # Of xdist, which may not be installed.
        @pytest.hookimpl(optionalhook=True)
        def pytest_xdist_setupnodes(self, config: pytest.Config) -> None:
            from pytest_msprobe.extensions.hosts.remote_hosts import start_remote_workers
            from pytest_msprobe.run.usage_errors import usage_errors

            with usage_errors():
                start_remote_workers(config)

    config.pluginmanager.register(HostWorkers(), "msprobe-host-workers")
