"""Errors of the monitor are reported once, and the training goes on."""

from __future__ import annotations

import logging
from collections import Counter

from msprobe_hooks.recording.safety_net import SafetyNet
from msprobe_hooks.recording.summary import described

_log = logging.getLogger("msprobe_hooks")


class Errors(Counter[str]):
    """Number of failures of monitoring, by what could not be monitored."""

    def note(self, where: str, error: BaseException) -> None:
        """Count what went wrong, and log it the first time."""
        self[where] += 1
        if self[where] == 1:
            _log.warning("not monitored: %s: %s", where, described(error))

    def kept_from(self, where: str) -> SafetyNet:
        """Return a context, to be entered any number of times, that exceptions do not leave: they are noted."""
        return SafetyNet(self.note, where)

    def log_counts(self) -> None:
        """Report how often each came."""
        for where, count in self.items():
            _log.warning("not monitored (%d x): %s", count, where)
