"""State of one process of a run: its name, its share of the memory, what is left of it when it dies."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_msprobe.containment.captured_stderr import CapturedStderr
from pytest_msprobe.containment.deadline import EndTime
from pytest_msprobe.containment.process import offer_to_oom_killer
from pytest_msprobe.containment.readers_writer_lock import ReadersWriterLock

if TYPE_CHECKING:
    from pytest_msprobe.containment.memory_reservation import MemoryReservation
    from pytest_msprobe.containment.protocols import Host
    from pytest_msprobe.containment.run_folder import RunFolder
    from pytest_msprobe.engine.replay.trials.memory_budget import Admit


class ProcessState:
    """The state of this process, or of the child that runs its items.

    ``host`` is what it holds for them, ``timeout`` the seconds that a small item may take, ``folder`` the run's folder,
    None in a run without dumps, ``worker`` its name where it is an xdist worker.
    """

    def __init__(self, host: Host, timeout: float | None, folder: RunFolder | None, worker: str | None = None) -> None:
        self.host = host
        self.timeout = timeout
        self.folder = folder
        #: The name under which this process has files in the run's folder.
        self.name = worker or "main"
        #: Whether somebody starts another process in place of this one when it dies.
        self.is_replaceable = worker is not None
        #: Where this process writes when it has to have ended an item, for the process that ends it from outside.
        self.end_time: EndTime | None = None
        #: Where a process forked for a test's check notes which record it judges now.
        self.on_judging: Callable[[str], None] | None = None
        #: Why the device can no longer be used, once that is known.
        self.broken_device: str | None = None
        self._forgetting: list[Callable[[], None]] = []

    def on_forget(self, forget: Callable[[], None]) -> None:
        """Register a function to call whenever what is kept from one item for the next is to go."""
        self._forgetting.append(forget)

    def forget(self) -> None:
        """Drop what is kept from one item for the next, and the memory reserved for it."""
        for forget in self._forgetting:
            forget()
        self.release()

    def release(self) -> None:
        """Release the memory that is reserved for the running call."""
        if "_reservation" in vars(self) and self._reservation is not None:
            self._reservation.release()

    def make_space(self) -> None:
        """Release all memory that is kept for later, on the CPU and on the card."""
        self.forget()
        gc.collect()
        self.host.release_memory()

    def abandon(self, dump: Path, record: str) -> None:
        """Abandon a record that did not end; after a forward one, its backward record is not tried."""
        self.forget()
        if self.folder is not None:
            self.folder.post("abandoned", dump, record)

    def was_abandoned(self, dump: Path, record: str) -> bool:
        """Return whether a record was given up by any process of the run."""
        return self.folder is not None and self.folder.is_posted("abandoned", dump, record)

    def probe(self) -> None:
        """Find out whether the device still works, after an item that may have broken it."""
        problem = self.host.probe()
        if problem is not None:
            self.broken_device = problem

    def close(self) -> None:
        """Close the files that this process has in the run's folder, where it outlives the run."""
        for name in ("stderr", "lock"):
            opened = vars(self).get(name)
            if opened is not None:
                opened.close()

    def prepare_to_exit(self) -> None:
        """Report this process's end to the process that replaces it, by Python's report of a fatal signal too."""
        self.is_replaceable = True
        offer_to_oom_killer()
        if self.stderr is not None:
            self.stderr.take_fatal_errors()

    @property
    def watchdog(self) -> int | None:
        """The file to which the watchdog writes before it ends this process; None where it is not replaced."""
        return self.stderr.fd if self.stderr is not None and self.is_replaceable else None

    @functools.cached_property
    def stderr(self) -> CapturedStderr | None:
        """Return where the stderr of an item is kept; None in a run without dumps."""
        return None if self.folder is None else CapturedStderr(self.folder.stderr_file(self.name))

    @functools.cached_property
    def lock(self) -> ReadersWriterLock:
        """Return what lets the run's items run together, or one alone."""
        assert self.folder is not None
        return ReadersWriterLock(self.folder.path, self.make_space)

    @property
    def admit(self) -> Admit:
        """Return what lets a call in by the memory that is free."""
        from pytest_msprobe.engine.replay.trials.memory_budget import admit_at_once

        return admit_at_once if self._reservation is None else self._reservation.admit

    @functools.cached_property
    def _reservation(self) -> MemoryReservation | None:
        from pytest_msprobe.containment.memory_reservation import MemoryReservation

        return None if self.folder is None else MemoryReservation(self.folder.path, self.name)


state_key = pytest.StashKey[ProcessState]()
