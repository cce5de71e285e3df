"""The fast path through pytest for calls that agree.

A comparison takes a tenth of a millisecond and has no fixtures, yet pytest's phases of setup, call and teardown take
five times as long. Items that pass or skip are reported without them; what fails goes through pytest's own protocol.
"""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

import pytest

from pytest_msprobe.modes.compare.items import ComparedItem

if TYPE_CHECKING:
    from pytest_msprobe.results.result import DirectionResult


class FastPath:
    """The plugin that takes it, in every process that runs items."""

    def pytest_collection_finish(self) -> None:
        """Keep dumps and items, which live as long as the process, out of every later garbage collection."""
        gc.freeze()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Take the fast path for compared calls that agree."""
        return run_quickly(item, nextitem)


def run_quickly(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run an item and report it, if it agrees; None leaves it to pytest, and with it the teardown of the session."""
    if not isinstance(item, ComparedItem) or not isinstance(nextitem, ComparedItem):
        return None
    start = time.time()
    result = item.reach_verdict()
    if result.verdict.outcome == "fail":
        return None
    hook = item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    report = _report(item, result, start)
    item.attach(report)
    hook.pytest_runtest_logreport(report=report)
    if item.config.option.xmlpath:
        # The JUnit file takes an item's properties from its last report.
        hook.pytest_runtest_logreport(report=_report(item, None, start))
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _report(item: ComparedItem, result: DirectionResult | None, start: float) -> pytest.TestReport:
    skipped = result is not None and result.verdict.outcome == "skip"
    stop = time.time()
    return pytest.TestReport(
        item.nodeid,
        item.location,
        {item.name: 1},
        "skipped" if skipped else "passed",
        (str(item.path), 0, f"Skipped: {result.verdict.reason}") if skipped and result else None,
        "call" if result else "teardown",
        duration=stop - start if result else 0.0,
        start=start,
        stop=stop,
        user_properties=item.user_properties,
    )
