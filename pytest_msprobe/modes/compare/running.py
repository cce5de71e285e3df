"""The fast path through pytest for calls that agree.

A comparison takes a tenth of a millisecond and has no fixtures, yet the hooks around pytest's phases of setup, call and
teardown take five times as long. Items that pass or skip are reported without them, each phase as always: some plugins
count an item at its teardown. What fails goes through pytest's own protocol.
"""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from pytest_msprobe.modes.compare.items import ComparedItem
from pytest_msprobe.reports.text import printable

if TYPE_CHECKING:
    from pytest_msprobe.results.result import DirectionResult

# The hooks that the fast path does not call.
_LEFT_OUT = ("pytest_runtest_setup", "pytest_runtest_call", "pytest_runtest_teardown", "pytest_runtest_makereport")


class FastPath:
    """The plugin that takes it, in every process that runs items."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._is_open = True

    def pytest_collection_finish(self) -> None:
        """Keep dumps and items, which live as long as the process, out of every later garbage collection."""
        gc.freeze()
        # Every conftest.py has been loaded.
        self._is_open = not is_watched(self._config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Take the fast path for compared calls that agree."""
        return run_quickly(item, nextitem) if self._is_open else None


def is_watched(config: pytest.Config) -> bool:
    """Tell whether the user asks to see the phases: ``--setup-show`` and its like, or hooks in a ``conftest.py``."""
    hooks = (getattr(config.hook, name) for name in _LEFT_OUT)
    names = (implementation.plugin_name for hook in hooks for implementation in hook.get_hookimpls())
    return bool(config.getoption("setupshow", False)) or any(Path(name).name == "conftest.py" for name in names)


def run_quickly(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run an item and report it, if it agrees; None leaves it to pytest, and with it the teardown of the session."""
    if not isinstance(item, ComparedItem) or not isinstance(nextitem, ComparedItem):
        return None
    start = time.time()
    result = item.reach_verdict()
    if result.verdict.outcome == "fail":
        return None
    hook = item.ihook
    report = _call_report(item, result, start)
    item.attach(report)
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    hook.pytest_runtest_logreport(report=_empty_report(item, "setup", report.start))
    hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logreport(report=_empty_report(item, "teardown", report.stop))
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _call_report(item: ComparedItem, result: DirectionResult, start: float) -> pytest.TestReport:
    skipped, stop = result.verdict.outcome == "skip", time.time()
    return pytest.TestReport(
        item.nodeid,
        item.location,
        {item.name: 1},
        "skipped" if skipped else "passed",
        (str(item.path), 0, f"Skipped: {printable(result.verdict.reason)}") if skipped else None,
        "call",
        duration=stop - start,
        start=start,
        stop=stop,
        user_properties=item.user_properties,
    )


def _empty_report(item: ComparedItem, when: Literal["setup", "teardown"], at: float) -> pytest.TestReport:
    return pytest.TestReport(
        item.nodeid,
        item.location,
        {item.name: 1},
        "passed",
        None,
        when,
        start=at,
        stop=at,
        user_properties=item.user_properties,
    )
