"""Tensors as entries of records: which are written to files, and those whose numbers are still on a device.

A framework that is recorded implements `Framework`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import msgspec
from msgspec import UnsetType

from msprobe_hooks.recording.backward import Emit, Engine, Inputs
from msprobe_hooks.recording.checksums import ChecksumThread
from msprobe_hooks.recording.config import Settings
from msprobe_hooks.recording.elements import ElementBuilder, Elements, Shared, TensorEntry
from msprobe_hooks.recording.tensor_entry import Statistics
from msprobe_hooks.recording.tensor_files import TensorFiles


class Framework(ABC):
    """Access to a framework's tensors, and to the course and end of its backward pass."""

    framework: ClassVar[str]
    elements_class: ClassVar[type[Elements]]
    engine: ClassVar[Engine]
    #: What gives the entry that all records of an unchanged tensor share, None where each has its own.
    shared: Shared | None = None

    @abstractmethod
    def quiet(self) -> AbstractContextManager[None]:
        """Return a context in which looking at tensors leaves no trace."""

    @abstractmethod
    def is_grad_enabled(self) -> bool:
        """Return whether what is called now can be differentiated."""

    @abstractmethod
    def is_recompute(self, frame: FrameType | None) -> bool | None:
        """Return whether a call is made by activation checkpointing; None where the framework does not say."""

    @abstractmethod
    def inputs(self, values: Any, awaited: Iterable[Any] = ()) -> Inputs:
        """Return where gradients leave a call for the tensors among its arguments.

        The record is complete when those of the ``awaited`` tensors were seen as well.
        """

    @abstractmethod
    def differentiated(self, values: Any) -> list[Any]:
        """Return the tensors among nested values that take a gradient."""

    @abstractmethod
    def watch(self, outputs: list[Any], inputs: Any, emit: Emit, where: str) -> None:
        """Call ``emit`` with the gradients of a call's outputs and inputs when the backward pass reaches them.

        ``outputs`` are those that take a gradient, ``inputs`` are this framework's. ``where`` is what the gradients are
        named when they cannot be taken.
        """

    @abstractmethod
    def summarise(self, tensor: Any, entry: TensorEntry) -> None:
        """Fill a tensor's entry with what is collected of its values, now or when numbers are fetched."""

    @abstractmethod
    def save(self, tensor: Any, name: str) -> str | UnsetType:
        """Write a tensor under that name, and return what its record says of the file; UNSET where none is written."""

    @abstractmethod
    def forget(self) -> None:
        """Measure everything anew, as after a step."""

    @abstractmethod
    def fetch_numbers(self, waiting: Iterable[Statistics]) -> None:
        """Fetch those numbers to the host that are still on a device."""

    @abstractmethod
    def open_files(self, folder: Path) -> TensorFiles:
        """Return what writes tensors into a folder."""

    def is_failure(self, error: BaseException) -> bool:
        """Return whether a call that raised this has gone wrong."""
        return True


class Measuring(Framework):
    """A framework's tensors, measured as the settings of one recording say."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.lock = threading.RLock()
        self.checksums = ChecksumThread()
        #: Entries of tensors whose numbers are still to come, by their ids.
        self._waiting: dict[int, tuple[TensorEntry, Statistics]] = {}
        self._keeps_all = settings.task == "tensor"

    def elements(self, name: str) -> ElementBuilder:
        """Return a builder for the elements of a record."""
        return self.written_elements(name)

    def written_elements(self, name: str) -> Elements:
        """Return a builder for the elements of a record that is written as they are now."""
        parts = self.settings.tensor_list
        if self._keeps_all or (parts and any(part in name for part in parts)):
            return self.elements_class(name, self.summarise, self.save)
        return self.elements_class(name, self.summarise, None, self.shared, self.copied)

    def has_met_non_finite(self) -> bool:
        """Return whether inf or nan was measured since this was last asked."""
        return False

    def is_stale(self, value: Any) -> bool:
        """Return whether a tensor holds inf or nan that it did not hold when it was measured, though unchanged."""
        return False

    def fill(self, entry: TensorEntry, statistics: Statistics) -> None:
        """Fill a tensor's entry, now or, where numbers are still to come, when the files are written."""
        if statistics.is_waiting:
            self._waiting[id(entry)] = (entry, statistics)
        else:
            entry.fill(statistics)

    def copied(self, entry: TensorEntry) -> TensorEntry:
        """Return an entry like this one, which is filled when this one is."""
        with self.lock:
            copy = msgspec.structs.replace(entry)
            waiting = self._waiting.get(id(entry))
            if waiting is not None:
                self.fill(copy, waiting[1])
        return copy

    def fetch(self) -> None:
        """Fill the entries whose numbers were still to come."""
        by_id, self._waiting = self._waiting, {}
        waiting = by_id.values()
        if waiting:
            self.checksums.wait()
            self.fetch_numbers({id(statistics): statistics for _, statistics in waiting}.values())
            for entry, statistics in waiting:
                statistics.is_waiting = False
                entry.fill(statistics)
            self.checksums.check()
