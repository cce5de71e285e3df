"""Scheduler of items on xdist's workers: a worker's death costs the item that it was running, and none else."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import (
    LoadFileScheduling,
    LoadGroupScheduling,
    LoadScopeScheduling,
    WorkStealingScheduling,
)

from pytest_msprobe.containment import captured_stderr
from pytest_msprobe.containment.captured_stderr import ExitCause, KernelKills, explain
from pytest_msprobe.containment.run_folder import run_folder_key
from pytest_msprobe.errors import WorkerError
from pytest_msprobe.reports.report_payload import results_in
from pytest_msprobe.results.outcomes import Breakdown

# A choice: from the end of its channel to its status a worker takes milliseconds, on a loaded machine more.
_DYING_SECONDS = 2.0

# As many as xdist allows in all, for each worker.
_EXITS_IN_A_ROW = 4


class Progress:
    """Items that have started and finished, and workers that died, as the controller knows them.

    By the ids of items::

        _started       {"tests/dump.json::Torch.add.0.forward", ...}      started, not done with
        _finished      {<worker gw0>: "tests/dump.json::Torch.mul.1.forward"}   the last that each worker reported
        _exit_causes   {"tests/dump.json::Torch.add.0.forward": ExitCause}      why the worker died that ran it

    The item that a dead worker ran is in ``_started``; where its first uncompleted item is not, nothing is to blame.
    ``cause_elsewhere`` finds out why a worker on another host died; it returns None for one of this host.
    """

    def __init__(self, config: pytest.Config, cause_elsewhere: Callable[[Any], ExitCause | None]) -> None:
        self._config = config
        self._cause_elsewhere = cause_elsewhere
        self._started: set[str] = set()
        self._finished: dict[Any, str] = {}
        self._exit_causes: dict[str, ExitCause] = {}
        self._exits_in_a_row = 0
        self._kernel_kills = KernelKills()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Remember that an item has started."""
        self._started.add(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Remember what a worker finished last; end the run where pytest has counted enough failures."""
        if hasattr(report, "node") and results_in(report):
            self._finished[report.node] = report.nodeid
            self._exits_in_a_row = 0
        # xdist counts failures of its own, without crashes.
        session, distributed = map(self._config.pluginmanager.get_plugin, ("session", "dsession"))
        if session and distributed and session.shouldfail and not distributed.shouldstop:
            distributed.shouldstop = str(session.shouldfail)

    def completed(self, nodeid: str) -> None:
        """Forget an item that is done with."""
        self._started.discard(nodeid)

    def is_running(self, nodeid: str) -> bool:
        """Return whether an item has started and is not done with."""
        return nodeid in self._started

    def has_finished(self, node: Any, nodeid: str) -> bool:
        """Return whether this is what a worker finished last."""
        return self._finished.get(node) == nodeid

    def exit_cause(self, node: Any, nodeid: str) -> ExitCause:
        """Return why a worker died while it ran an item."""
        if nodeid not in self._exit_causes:
            self._exit_causes[nodeid] = self._cause_elsewhere(node) or self._cause_here(node)
        return self._exit_causes[nodeid]

    def _cause_here(self, node: Any) -> ExitCause:
        words = captured_stderr.read(self._config.stash[run_folder_key].stderr_file(node.gateway.id))
        return explain(status_of(node), words, memory_ran_out=self._kernel_kills.since_last())

    def forget_exit(self, nodeid: str) -> None:
        """Allow an item another try."""
        del self._exit_causes[nodeid]

    def count_exit(self, workers: int) -> None:
        """Count a worker that died. Raises WorkerError where none does anything else any more."""
        self._exits_in_a_row += 1
        if self._exits_in_a_row > _EXITS_IN_A_ROW * workers:
            raise WorkerError(f"{self._exits_in_a_row} workers in a row died before they finished an item")


progress_key = pytest.StashKey[Progress]()


def status_of(node: Any) -> int | None:
    """Return how a worker's process, or that of the link to it, ended, where it is a process of this machine."""
    process = getattr(getattr(node.gateway, "_io", None), "popen", None)
    if process is None:
        return None
    try:
        return int(process.wait(_DYING_SECONDS))
    except subprocess.TimeoutExpired:
        return None


class End(Enum):
    """End of the first item that a dead worker had not completed."""

    FINISHED = "it was reported"
    CRASHED = "it ended the worker"
    PENDING = "it did not start, or is to be tried again"


class Blame:
    """Reports what ended workers.

    xdist blames the first item that a worker has not completed. That is another one where the worker ended itself
    after it reported an item, because its device was broken.
    """

    def __init__(self, config: pytest.Config, progress: Progress) -> None:
        self._config = config
        self._progress = progress

    def end_of(self, node: Any, nodeid: str) -> End:
        """Return what became of the first uncompleted item of a worker that has died."""
        if self._progress.has_finished(node, nodeid):
            self._progress.completed(nodeid)
            return End.FINISHED
        if not self._progress.is_running(nodeid):
            return End.PENDING
        self._progress.completed(nodeid)
        ran_out = self._progress.exit_cause(node, nodeid).breakdown is Breakdown.OOM
        return End.PENDING if ran_out and self._is_tried_again(node, nodeid) else End.CRASHED

    def _is_tried_again(self, node: Any, nodeid: str) -> bool:
        """Schedule an item that ran out of memory to run alone, once."""
        path, _, record = nodeid.partition("::")
        folder, dump = self._config.stash[run_folder_key], Path(self._config.rootpath) / path
        if folder.is_posted("alone", dump, record):
            return False
        folder.post("alone", dump, record)
        self._progress.forget_exit(nodeid)
        _leave_out_of_junit(self._config, node)
        return True


class ContainedStealing(WorkStealingScheduling):  # type: ignore[misc,unused-ignore]
    """Work stealing that blames a worker's death on the item that ran, if one did.

    xdist keeps items by their number in ``collection``::

        node2pending   {<worker gw0>: [4, 5, 6], <worker gw1>: [7, 8]}   the first of each list runs
        pending        [9, 10, ...]                                      not given to any worker

    When gw0 dies, 4 is removed if it was reported, reported as a crash if it ran, and tried again otherwise; 5 and 6
    go back to the front of ``pending``, as does 4 where nothing is to blame.
    """

    def __init__(self, config: pytest.Config, log: Any, progress: Progress) -> None:
        super().__init__(config, log)
        self._progress = progress
        self._blame = Blame(config, progress)

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """Take what a worker has collected."""
        super().add_node_collection(node, collection)
        _share(self.node2collection, node)

    def mark_test_complete(self, node: Any, item_index: int, duration: float | None = None) -> None:
        """Mark an item as completed by a worker."""
        assert self.collection is not None
        self._progress.completed(self.collection[item_index])
        super().mark_test_complete(node, item_index, duration)

    def check_schedule(self) -> None:
        """Send items to idle workers."""
        # A worker may die while it is written to; its items are given out again when that is noticed.
        with contextlib.suppress(OSError):
            super().check_schedule()

    def remove_node(self, node: Any) -> str | None:
        """Take the items of a worker back that has ended; return the one that has ended it, if any."""
        unfinished = self.node2pending[node]
        if unfinished:
            assert self.collection is not None
            end = self._blame.end_of(node, self.collection[unfinished[0]])
            if end is End.FINISHED:
                del unfinished[0]
            if end is not End.CRASHED:
                self.pending[:0] = unfinished
                unfinished.clear()
        crashed: str | None = super().remove_node(node)
        return crashed


class _ContainedScopes(LoadScopeScheduling):  # type: ignore[misc,unused-ignore]
    """Whole scopes for each worker, of which a worker's death costs the item that ran.

    xdist gives a scope out again with the item that has killed the worker, which then kills the next one. Its two
    tables hold scopes, in each the items with whether they are done::

        assigned_work   {<worker gw0>: {"a/dump.json": {"a/dump.json::Torch.add.0.forward": True, ...}}}
        workqueue       {"b/dump.json": {"b/dump.json::Torch.mul.0.forward": False, ...}}

    When gw0 dies, the first item that is not done is marked as done if it ran or was reported; what is left of the
    scopes goes back to ``workqueue``.
    """

    def __init__(self, config: pytest.Config, log: Any, progress: Progress) -> None:
        super().__init__(config, log)
        self._progress = progress
        self._blame = Blame(config, progress)

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """Take what a worker has collected."""
        super().add_node_collection(node, collection)
        _share(self.registered_collections, node)

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Mark an item as completed by a worker."""
        self._progress.completed(self.registered_collections[node][item_index])
        super().mark_test_complete(node, item_index, duration)

    def remove_node(self, node: Any) -> str | None:
        """Take the scopes of a worker back that has ended; return the item that has ended it, if any."""
        scopes = self.assigned_work[node]
        first = ((unit, name) for unit in scopes.values() for name, done in unit.items() if not done)
        unit, nodeid = next(first, (dict[str, bool](), ""))
        end = self._blame.end_of(node, nodeid) if nodeid else End.PENDING
        if end is not End.PENDING:
            unit[nodeid] = True
        # A scope that is done would be given out as well, and a worker that gets nothing to run reports nothing.
        self.assigned_work[node] = {scope: unit for scope, unit in scopes.items() if not all(unit.values())}
        super().remove_node(node)
        self._release_last()
        return nodeid if end is End.CRASHED else None

    def schedule(self) -> None:
        """Send scopes to workers that wait for some."""
        super().schedule()
        self._release_last()

    def _release_last(self) -> None:
        """Shut down workers where nothing follows what they have: before that they do not begin their last item."""
        if not self.workqueue:
            for node in self.assigned_work:
                if not node.shutting_down:
                    node.shutdown()


class _ContainedFiles(_ContainedScopes, LoadFileScheduling):  # type: ignore[misc,unused-ignore]
    """The same, with a file as a scope."""


class _ContainedGroups(_ContainedScopes, LoadGroupScheduling):  # type: ignore[misc,unused-ignore]
    """The same, with an ``xdist_group`` as a scope."""


#: What spreads items in place of xdist's own, by the name that ``--dist`` has for it.
SCHEDULINGS = {
    "load": ContainedStealing,
    "worksteal": ContainedStealing,
    "loadscope": _ContainedScopes,
    "loadfile": _ContainedFiles,
    "loadgroup": _ContainedGroups,
}


def _share(collections: dict[Any, list[str]], node: Any) -> None:
    """Keep collections that are equal once: the ids of 200 000 records of 64 workers would take gigabytes."""
    first = next(iter(collections.values()))
    if collections.get(node) == first:
        collections[node] = first


def _leave_out_of_junit(config: pytest.Config, node: Any) -> None:
    """Take back the test case that began on a dead worker: JUnit's file would hold it unnamed."""
    for plugin in config.pluginmanager.get_plugins():
        begun = getattr(plugin, "node_reporters", {})
        for key in [key for key in begun if key[1] is node]:
            plugin.node_reporters_ordered.remove(begun.pop(key))
