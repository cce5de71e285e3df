"""Records judged one after another in this process, as a run without workers judges its items."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_msprobe.containment.process_state import ProcessState
from pytest_msprobe.containment.run_folder import RunFolder
from pytest_msprobe.containment.run_in_process import judge_in_process
from pytest_msprobe.errors import DeviceError

if TYPE_CHECKING:
    from pytest_msprobe.results.result import DirectionResult
    from pytest_msprobe.run.setups import Setups


@dataclass
class Judgement:
    """One record as containment knows it: ``judge`` reaches the verdict on it."""

    name: str
    path: Path
    judge: Callable[[], DirectionResult]
    records: Callable[[], list[bytes]]

    @property
    def nodeid(self) -> str:
        """The record, with its dump."""
        return f"{self.path}::{self.name}"


@contextmanager
def process_state(setups: Setups) -> Iterator[ProcessState]:
    """Give the state of this process for the time that records are judged in it."""
    folder = RunFolder.make()
    state = ProcessState(setups, None, folder)
    try:
        yield state
    finally:
        state.forget()
        state.close()
        folder.remove()


def judged(judgement: Judgement, state: ProcessState) -> DirectionResult:
    """Return what came of a record. Raises DeviceError where a record before it has broken the device."""
    if state.broken_device is not None:
        raise DeviceError(state.broken_device, remedy="check the other records in a new process")
    return judge_in_process(judgement, state)
