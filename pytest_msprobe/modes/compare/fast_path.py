"""The fast path through pytest for calls that agree.

A comparison takes a tenth of a millisecond and has no fixtures, yet the hooks around pytest's phases of setup, call and
teardown take five times as long. Where nobody but pytest itself listens to them, items that pass or skip are reported
without them, each phase as always. What fails goes through pytest's own phases, and so does what `empty_phases` leaves
to pytest.
"""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

import pytest
from _pytest.runner import runtestprotocol

from pytest_msprobe.modes.compare.items import ComparedItem
from pytest_msprobe.reports.text import one_line
from pytest_msprobe.run.fast.fast_protocol import empty_report, may_be_left_out, next_item_is_sibling

if TYPE_CHECKING:
    from pytest_msprobe.results.result import DirectionResult


class FastPath:
    """The plugin that takes it, in every process that runs items."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._is_open = False

    def pytest_collection_finish(self) -> None:
        """Keep dumps and items, which live as long as the process, out of every later garbage collection."""
        gc.freeze()
        self._is_open = may_be_left_out(self._config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Take the fast path for compared calls."""
        if not (self._is_open and isinstance(item, ComparedItem) and next_item_is_sibling(item, nextitem)):
            return None
        run_quickly(item, nextitem)
        return True


def run_quickly(item: ComparedItem, nextitem: pytest.Item | None) -> None:
    """Run an item and report each of its phases; one that fails has them as pytest makes them."""
    hook = item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    start = time.time()
    result = item.evaluate()
    if result.verdict.outcome == "fail":
        runtestprotocol(item, nextitem=nextitem)
    else:
        report = _call_report(item, result, start)
        item.attach(report)
        hook.pytest_runtest_logreport(report=empty_report(item, "setup", report.start))
        hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logreport(report=empty_report(item, "teardown", report.stop))
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def _call_report(item: ComparedItem, result: DirectionResult, start: float) -> pytest.TestReport:
    skipped, stop = result.verdict.outcome == "skip", time.time()
    return pytest.TestReport(
        item.nodeid,
        item.location,
        {item.name: 1},
        "skipped" if skipped else "passed",
        (str(item.path), 0, f"Skipped: {one_line(result.verdict.reason)}") if skipped else None,
        "call",
        duration=stop - start,
        start=start,
        stop=stop,
        user_properties=item.user_properties,
    )
