"""Launch of workers on other hosts, with reports of those that did not start, without hosts that are lost."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from platform import python_version
from typing import Any

import pytest
from execnet import Group, HostNotFound, RemoteError, XSpec

from pytest_msprobe.containment import run_folder
from pytest_msprobe.containment.captured_stderr import ExitCause, explain
from pytest_msprobe.containment.run_folder import RunFolder
from pytest_msprobe.containment.scheduler import status_of
from pytest_msprobe.errors import HostError
from pytest_msprobe.extensions.hosts import bootstrap
from pytest_msprobe.extensions.hosts.remote_worker import INPUT
from pytest_msprobe.extensions.hosts.run_files import FileServer, remote_arguments
from pytest_msprobe.results.outcomes import Breakdown
from pytest_msprobe.run.hosts import HERE

# What a worker needs wherever it runs: modules, and the distributions that they are of.
_NEEDED = {"pytest": "pytest", "xdist": "pytest-xdist", "pytest_msprobe": "pytest-msprobe"}

# What execnet starts on another host.
_PYTHON = "python"

_ADDED_BY_XDIST = "execmodel=main_thread_only//"

# For how long ssh tries to reach a host, and how soon it notices that one is gone. Its own answer is minutes and hours.
_PATIENCE = "-o ConnectTimeout=30 -o ServerAliveInterval=15 -o ServerAliveCountMax=4"


# What execnet raises where a process cannot be started, or ends while it is.
START_ERRORS = (HostNotFound, RemoteError, OSError, EOFError)

# The exit status by which ssh reports any failure of its own.
_SSH_FAILED = 255

# What is run there to read a file.
_READ = """
import pathlib
path = pathlib.Path(channel.receive())
channel.send(path.read_text(errors="replace") if path.exists() else "")
"""
# A choice: a few lines of text over ssh; a host that does not answer by then is gone.
_READ_SECONDS = 30


def host_of(spec: Any, proxies: Mapping[str, Any]) -> str:
    """Return the name of the host where a process of a specification runs; ``HERE`` for this machine.

    That is the text of ``ssh=`` or the host of ``socket=``. ``proxies`` are the specifications that ``via=`` may name.
    """
    if spec.via:
        return host_of(proxies[spec.via], proxies) if spec.via in proxies else str(spec.via)
    if spec.socket:
        return str(spec.socket).rpartition(":")[0]
    return str(spec.ssh or spec.vagrant_ssh or HERE)


@dataclass(frozen=True, eq=False)
class LostWorker:
    """Replaces a worker that could not start because its host is lost."""

    where: str


class Hosts:
    """The hosts of a run; starts its workers in place of the manager of nodes of xdist's ``session``.

    ``packages`` are the modules that items need, with the distributions that they are of.
    """

    def __init__(self, config: pytest.Config, session: Any, desk: FileServer, packages: Mapping[str, str]) -> None:
        manager = session.nodemanager
        self._config = config
        self._session = session
        self._desk = desk
        self._packages = {**_NEEDED, **packages}
        self._proxies = {str(proxy.id): proxy for proxy in map(XSpec, config.getoption("px", []))}
        self._words = remote_arguments(config)
        self._specs = list(manager.specs)
        self._start = manager.setup_node
        self._number = 0
        self._lost: set[str] = set()
        self._introduced: set[tuple[str, str]] = set()
        self._abandoned: list[list[str]] = []
        self._alive: dict[Any, str] = {}
        manager.setup_node = self.setup_node
        # xdist calls it when it takes an event "never_started" out of its queue.
        session.worker_never_started = self._forget
        if not config.option.rsyncdir and not config.getini("rsyncdirs"):
            # Every host has a pytest of its own, in which the plugin is installed.
            manager.roots = []
        for spec in self._specs:
            if spec.ssh and " -o" not in f" {spec.ssh}":
                spec.ssh = f"{_PATIENCE} {spec.ssh}"

    def host_of(self, spec: XSpec) -> str:
        """Return the name of a specification's host."""
        return host_of(XSpec(str(spec)), self._proxies)

    def workers_on(self, host: str) -> int:
        """Return how many workers a host is to have."""
        return sum(self.host_of(spec) == host for spec in self._specs)

    def setup_node(self, spec: XSpec, putevent: Callable[[tuple[str, dict[str, Any]]], None]) -> Any:
        """Start a worker. One that replaces another is given up, with all of its host, where that cannot be reached.

        Raises pytest.UsageError where one of the first workers cannot start.
        """
        host = self.host_of(spec)
        self._number += 1
        if host not in self._lost:
            try:
                with self._without_arguments(host):
                    node = self._start(spec, putevent)
                self._alive[node] = host
                return node
            except (HostError, *START_ERRORS, ValueError, AssertionError) as error:
                problem = str(error) if isinstance(error, HostError) else _problem(host, spec, error)
                if self._number <= len(self._specs):
                    raise pytest.UsageError(problem) from None
                self._lost.add(host)
                self._report(f"{problem}; the run goes on without it")
        lost = LostWorker(_where(host, spec))
        putevent(("never_started", {"node": lost}))
        return lost

    def _forget(self, node: LostWorker) -> None:
        """Stop xdist from waiting for a worker that never started. Raises pytest.UsageError if no worker is left.

        Plugins are not called: ``pytest_testnodedown`` is for workers that ``pytest_configure_node`` announced, and
        what plugins expect of those, such as their own keys in ``workeroutput``, this one does not have.
        """
        if not self._alive and not self._session.sched.tests_finished:
            raise pytest.UsageError(f"{node.where}: is lost, and no worker is left")
        self._session._active_nodes.remove(node)

    def welcome(self, node: Any) -> None:
        """Send the run's files to a new worker's host, and notify the worker. Raises HostError where that cannot be."""
        spec = node.gateway.spec
        host = self.host_of(spec)
        if host == HERE and not spec.python:
            return
        channel = node.gateway.remote_exec(bootstrap)
        channel.send(self._packages)
        self._require(host, spec, channel.receive())
        channel.send(None if host == HERE else self._wanted(node))
        if host != HERE:
            node.msprobe_link = self._link(node.gateway)
            node.msprobe_notices = node.gateway.newchannel()
            placed = self._place(host, node.gateway.id, channel)
            node.workerinput[INPUT] = {
                "host": host,
                "files": placed["files"],
                "limit": self._desk.baggage.limit,
                "link": node.msprobe_link,
                # What is sent before the worker has the channel is lost.
                "abandoned": self._abandoned,
                "notices": node.msprobe_notices,
            }
            node.workerinput |= {run_folder.INPUT: placed["run_folder"], run_folder.OWNER_INPUT: placed["owner"]}
        channel.waitclose()

    def exit_cause(self, node: Any) -> ExitCause | None:
        """Find out why a worker on another host died: the host is asked, if it can be reached.

        Returns None for a worker of this host.
        """
        host = self.host_of(node.gateway.spec)
        if host == HERE:
            return None
        path = RunFolder(Path(node.workerinput[run_folder.INPUT])).stderr_file(node.gateway.id)
        try:
            words = _read_there(node.gateway.spec, str(path)).replace(node.workerinput[INPUT]["files"], "")
        except START_ERRORS:
            return ExitCause(Breakdown.CRASH, f"host {host}, on which it ran, is lost")
        status = status_of(node)
        # ssh reports any signal, and a link that broke, by the same status.
        cause = explain(None if status == _SSH_FAILED else status, words, memory_ran_out=False)
        return replace(cause, reason=f"on host {host}: {cause.reason}")

    def report_abandoned(self, dump: str, record: str) -> None:
        """Notify workers on other hosts, those to come as well, that a record did not end."""
        self._abandoned.append([dump, record])
        for node in self._alive:
            if hasattr(node, "msprobe_notices"):
                with contextlib.suppress(OSError):
                    node.msprobe_notices.send([dump, record])

    def leave(self, node: Any, error: object) -> None:
        """Take note of a worker that has ended. Raises HostError where the run cannot go on after it."""
        host = self._alive.pop(node, HERE)
        if error and host != HERE and not self._session.sched.collection_is_completed:
            raise HostError(f"host {host}: pytest did not start there: {_last_line(error)}")

    def _wanted(self, node: Any) -> dict[str, Any]:
        config, baggage = self._config, self._desk.baggage
        return {
            "run": f"pytest-msprobe-{node.workerinput['testrunuid']}",
            "folders": [str(config.invocation_params.dir), str(config.rootpath)],
            "files": baggage.described,
            "only_in_place": baggage.only_in_place,
            "limit": baggage.limit,
            "words": self._words,
        }

    def _place(self, host: str, worker: str, channel: Any) -> dict[str, Any]:
        """Send what a host asks for until it has all. Raises HostError where it cannot take it."""
        while True:
            kind, *content = channel.receive()
            if kind == "placed":
                return dict(content[0])
            if kind == "problem":
                raise HostError(f"host {host}: {content[0]}")
            channel.send(self._desk.answer([kind, *content], worker))

    def _link(self, gateway: Any) -> Any:
        """Return a channel by which a worker asks for files while it runs."""
        link = gateway.newchannel()
        link.setcallback(lambda question: link.send(self._desk.answer(question, gateway.id)))
        return link

    def _require(self, host: str, spec: XSpec, versions: Mapping[str, str]) -> None:
        """Raise HostError for an installation that cannot take part, and report one that is not as this is."""
        where = _where(host, spec)
        python = spec.python or _PYTHON
        if host == HERE and versions["python"].split(".")[:2] != python_version().split(".")[:2]:
            raise HostError(
                f"{where}: runs Python {versions['python']}, here is {python_version()}; xdist needs the same version",
                remedy="name it as another host, by ssh=localhost",
            )
        missing = [name for module, name in self._packages.items() if module not in versions]
        if missing and host != HERE:
            raise HostError(
                f"{where}: {python} lacks {', '.join(missing)}", remedy="install it there, or name another python="
            )
        ours = bootstrap.installed(self._packages)
        if host != HERE and versions["pytest_msprobe"] != ours["pytest_msprobe"]:
            raise HostError(
                f"{where}: has pytest-msprobe {versions['pytest_msprobe']}, here {ours['pytest_msprobe']}",
                remedy="install the same version there",
            )
        others = [
            f"{name} {versions[name]} (here {ours.get(name)})" for name in versions if versions[name] != ours.get(name)
        ]
        if others and (host, python) not in self._introduced:
            self._report(f"{where} has {', '.join(others)}")
        self._introduced.add((host, python))

    @contextlib.contextmanager
    def _without_arguments(self, host: str) -> Iterator[None]:
        """Keep xdist from passing arguments to another host: it refuses paths, and ours are sent there by `arrival`."""
        config = self._config
        former = config.invocation_params
        if host != HERE:
            config.invocation_params = config.InvocationParams(args=(), plugins=former.plugins, dir=former.dir)
        try:
            yield
        finally:
            config.invocation_params = former

    def _report(self, line: str) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(f"msprobe: {line}")


def _read_there(spec: XSpec, path: str) -> str:
    """Return what a file on another host holds, by a process of its own; empty where there is none."""
    group = Group()
    try:
        fresh = XSpec(str(spec))
        fresh.ssh = spec.ssh
        channel = group.makegateway(fresh).remote_exec(_READ)
        channel.send(path)
        return str(channel.receive(_READ_SECONDS))
    finally:
        group.terminate(timeout=1)


def _where(host: str, spec: XSpec) -> str:
    return f"host {host}" if host else f"--tx {str(spec).removeprefix(_ADDED_BY_XDIST)}"


def _problem(host: str, spec: XSpec, error: BaseException) -> str:
    """Return why a worker did not start; what ssh and the host's shell wrote is above it."""
    if isinstance(error, (HostNotFound, BrokenPipeError)):
        # The second is an ssh that was refused before it was given what to run.
        return f"{_where(host, spec)}: cannot be reached"
    if isinstance(error, (RemoteError, ValueError, AssertionError)):
        # The last two are what execnet and xdist say of a specification.
        return f"{_where(host, spec)}: {_last_line(error)}"
    reason = getattr(error, "strerror", None)
    return f"{_where(host, spec)}: {reason or f'no Python answered; check python={spec.python or _PYTHON}'}"


def _last_line(error: object) -> str:
    """Return what an error from a host says at its end, without the name of its class."""
    line = (str(error).strip().splitlines() or ["it ended"])[-1]
    kind, colon, text = line.partition(": ")
    return text if colon and kind.replace(".", "").replace("_", "").isalnum() else line
