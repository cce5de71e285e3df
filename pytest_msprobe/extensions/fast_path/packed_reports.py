"""Reports that pytest keeps to the end of a run, after all plugins have heard them.

Most are never asked for anything again. Those of an item that can make them again are kept as the item and two times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import pytest

Phase = Literal["setup", "call", "teardown"]


class MakesReportsAgain(Protocol):
    """An item whose reports follow from what others keep."""

    def report_again(self, when: Phase, start: float, stop: float, skipped: str | None) -> pytest.TestReport:
        """Return the report of a phase as it was."""

    def release(self) -> None:
        """Release what the item holds."""


class PackedReport(pytest.TestReport):
    """A report that is made again when an attribute of it is asked for."""

    __slots__ = ("_item", "_made", "_when")

    def __init__(self, item: MakesReportsAgain, when: Phase, times: tuple[float, float, str | None]) -> None:
        self._item = item
        self._when = when
        self._made = times

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the report, which is made now."""
        if not name.startswith("__") and not vars(self):
            vars(self).update(vars(self._item.report_again(self._when, *self._made)))
            return getattr(self, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def pack_reports(
    reporter: pytest.TerminalReporter | None,
    item: MakesReportsAgain,
    reports: Sequence[pytest.TestReport],
    own: frozenset[str],
    skipped: str | None,
) -> None:
    """Replace the reports of an item in what the terminal keeps, unless a plugin added something to them.

    ``own`` are the attributes that the item's reports have.
    """
    if any(report.sections or not vars(report).keys() <= own for report in reports):
        return
    # A worker's reports go to the controller.
    is_kept = reporter is not None and not hasattr(reporter.config, "workerinput")
    for stored in reporter.stats.values() if reporter is not None and is_kept else ():
        for at in range(max(len(stored) - 2, 0), len(stored)):
            if any(stored[at] is report for report in reports):
                stored[at] = PackedReport(item, stored[at].when, (stored[at].start, stored[at].stop, skipped))
    item.release()
