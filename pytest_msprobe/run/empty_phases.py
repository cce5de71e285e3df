"""Phases of an item in which nothing happens, reported without pytest's hooks around them.

What is judged has no fixtures, so that nothing is set up or torn down, yet pytest's hooks around these two phases cost
as much as those around the call. Where nobody but pytest itself listens to them, they are left out. Each phase is
reported as always, and the call is pytest's own. An item goes through pytest's own phases where another plugin or a
``conftest.py`` has a hook that would not be called, where a mark would keep pytest from running it, and where it is the
last of its file: with it pytest tears down what it set up before.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal

import pytest
from _pytest.runner import call_and_report

from pytest_msprobe.run.foreign import has_foreign
from pytest_msprobe.run.item import JudgedItem
from pytest_msprobe.run.reporting import attach_start

# The hooks that are not called for each phase; of the protocol, those that would run an item in our place.
_PHASES = (
    "pytest_runtest_protocol",
    "pytest_runtest_setup",
    "pytest_runtest_call",
    "pytest_runtest_teardown",
    "pytest_runtest_makereport",
)
# Marks by which pytest itself would not run an item, or take its failure for a success.
_EVALUATED_MARKS = frozenset({"skip", "skipif", "xfail"})


class EmptyPhases:
    """The plugin that leaves them out, in every process that runs items."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._is_open = False

    def pytest_collection_finish(self) -> None:
        """Know who listens: every ``conftest.py`` has been loaded."""
        self._is_open = may_be_left_out(self._config)

    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Run a judged item that has no phase but its call."""
        if not (self._is_open and isinstance(item, JudgedItem) and is_followed(item, nextitem)):
            return None
        hook = item.ihook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        setup = empty_report(item, "setup", time.time())
        attach_start(item, setup)
        hook.pytest_runtest_logreport(report=setup)
        report = call_and_report(item, "call")
        if item.session.shouldfail or item.session.shouldstop:
            call_and_report(item, "teardown", nextitem=None)
        else:
            hook.pytest_runtest_logreport(report=empty_report(item, "teardown", report.stop, report.sections))
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True


def may_be_left_out(config: pytest.Config) -> bool:
    """Tell whether nobody sees that phases were left out; to be asked when every ``conftest.py`` has been loaded."""
    return not (config.getoption("setupshow", False) or has_foreign(config, _PHASES))


def is_followed(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Tell whether pytest would run an item, and tear nothing down after it: the next one is of the same file."""
    if nextitem is None or nextitem.parent is not item.parent:
        return False
    return not any(mark.name in _EVALUATED_MARKS for node in item.listchain() for mark in node.own_markers)


def empty_report(
    item: pytest.Item, when: Literal["setup", "teardown"], at: float, sections: Sequence[tuple[str, str]] = ()
) -> pytest.TestReport:
    """Return the report of a phase in which nothing happened."""
    return pytest.TestReport(
        item.nodeid,
        item.location,
        {item.name: 1},
        "passed",
        None,
        when,
        sections,
        start=at,
        stop=at,
        user_properties=item.user_properties,
    )
