"""Workers on other hosts, as a run sees them: what the controller asks of their hosts, and a worker of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from pytest_msprobe.results.result import card_of_host

if TYPE_CHECKING:
    from pytest_msprobe.containment.captured_stderr import ExitCause

#: The name of the controller's machine among hosts.
HERE = ""


class RemoteWorkers(Protocol):
    """The hosts of a run's workers, in the controller."""

    def host_of(self, spec: Any) -> str:
        """Return the name of the host of an execnet specification; ``HERE`` for this machine."""

    def workers_on(self, host: str) -> int:
        """Return how many workers a host has."""

    def welcome(self, node: Any) -> None:
        """Prepare the host of a new worker. Raises HostError where it cannot be used."""

    def leave(self, node: Any, error: object) -> None:
        """Go on without a worker that ended."""

    def exit_cause(self, node: Any) -> ExitCause | None:
        """Return why a worker on another host died; None for one of this host."""


class WorkerHost(Protocol):
    """The host of this process, which is a worker on another machine than its controller's."""

    @property
    def host(self) -> str:
        """Its name."""

    def as_there(self, tree: Any) -> Any:
        """Return plain data with paths as the controller has them."""

    def subscribe_abandoned(self, abandon: Callable[[str, str], None]) -> None:
        """Call a function for each record that did not end, with its dump's path here and its name."""

    def fetch_files(self, paths: Iterable[Path]) -> None:
        """Fetch files that an item reads. Raises HostError where one cannot be brought."""

    def send_back(self, folder: Path) -> None:
        """Send the controller the files that were written into a folder. Raises HostError where it takes none."""


#: Set in a controller whose workers may run on other hosts.
remote_workers_key = pytest.StashKey[RemoteWorkers]()

#: Set, when options are read, in a worker on another host.
worker_host_key = pytest.StashKey["WorkerHost | None"]()


def worker_host_of(config: pytest.Config) -> WorkerHost | None:
    """Return the host of this process; None on the controller's."""
    return config.stash.setdefault(worker_host_key, None)


def with_host(config: pytest.Config, card: str) -> str:
    """Return the name of a card with that of its host, where it is not the controller's."""
    here = worker_host_of(config)
    return card if here is None else card_of_host(card, here.host)


def to_controller_paths(config: pytest.Config, tree: Any) -> Any:
    """Return plain data, or a text, with paths as the controller of this process has them."""
    here = worker_host_of(config)
    return tree if here is None else here.as_there(tree)
