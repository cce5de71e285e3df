"""Tensors as entries of records: which are written to files, and those whose numbers are still on a device."""

from __future__ import annotations

import threading
from typing import Any

import msgspec

from msprobe_hooks.recording.checksums import ChecksumThread
from msprobe_hooks.recording.config import Settings
from msprobe_hooks.recording.elements import ElementBuilder, Elements, TensorEntry
from msprobe_hooks.recording.framework_protocol import Framework
from msprobe_hooks.recording.tensor_entry import Statistics


class Measuring(Framework):
    """A framework's tensors, measured as the settings of one recording say."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.lock = threading.RLock()
        self.checksums = ChecksumThread()
        #: Entries of tensors whose numbers are still to come, by their ids.
        self._waiting: dict[int, tuple[TensorEntry, Statistics]] = {}
        self._keeps_all = settings.task == "tensor"

    def keeps(self, name: str) -> bool:
        """Return whether the tensors of a record are written to files."""
        parts = self.settings.tensor_list
        return self._keeps_all or (bool(parts) and any(part in name for part in parts))

    def elements(self, name: str) -> ElementBuilder:
        """Return a builder for the elements of a record."""
        return self.written_elements(name)

    def written_elements(self, name: str) -> Elements:
        """Return a builder for the elements of a record that is written as they are now."""
        if self.keeps(name):
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
