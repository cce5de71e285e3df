"""Hooks that log an item are called without pluggy's steps, and each plugin that implements one is called as by pluggy.

Each run is a process of its own: within one, pytester watches the hooks, which pluggy then calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Write = Callable[..., Path]
Json = dict[str, Any]

CHECK = ("--msprobe-dump=dump.json", "--msprobe-device=cpu")

LISTENS = """
import pytest
seen = []

def pytest_runtest_logstart(location, nodeid):
    seen.append(("start", nodeid))

def pytest_runtest_logreport(report):
    seen.append((report.when, report.nodeid))

def pytest_runtest_logfinish():
    seen.append(("finish", ""))

def pytest_terminal_summary(terminalreporter):
    ids = [nodeid for when, nodeid in seen if when == "start"]
    wanted = [pair for id in ids for pair in (*((when, id) for when in ("start", "setup", "call", "teardown")),
                                              ("finish", ""))]
    terminalreporter.line(f"in order: {seen == wanted}, {len(ids)} items")
"""

WRAPS = """
import pytest
results = []

@pytest.hookimpl(wrapper=True)
def pytest_runtest_logreport(report):
    results.append(report.when)
    return (yield)

def pytest_terminal_summary(terminalreporter):
    terminalreporter.line(f"wrapped {len(results)}")
"""

REGISTERS_LATE = """
import pytest

class Late:
    count = 0
    def pytest_runtest_logreport(self, report):
        Late.count += 1

def pytest_runtest_logfinish(nodeid, location):
    if not Late.count:
        plugin_manager.register(Late())

def pytest_configure(config):
    global plugin_manager
    plugin_manager = config.pluginmanager

def pytest_terminal_summary(terminalreporter):
    terminalreporter.line(f"late heard {Late.count}")
"""

CATEGORIES = """
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report, config):
    if report.when == "setup" and report.passed:
        return "prepared", "", ""
"""


@pytest.fixture
def count(write_dump: Write, records: Json) -> int:
    """Write a dump and return how many records it has."""
    write_dump(records)
    return len(records)


def run(pytester: pytest.Pytester, *words: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess(*CHECK, *words)


def test_a_plugin_hears_of_each_phase_in_order(pytester: pytest.Pytester, count: int) -> None:
    pytester.makeconftest(LISTENS)
    run(pytester).stdout.fnmatch_lines([f"in order: True, {count} items"])


def test_a_plugin_that_wraps_a_report_wraps_each(pytester: pytest.Pytester, count: int) -> None:
    pytester.makeconftest(WRAPS)
    run(pytester).stdout.fnmatch_lines([f"wrapped {3 * count}"])


def test_a_plugin_that_is_registered_between_two_items_hears_of_the_second(
    pytester: pytest.Pytester, count: int
) -> None:
    pytester.makeconftest(REGISTERS_LATE)
    run(pytester).stdout.fnmatch_lines([f"late heard {3 * (count - 1)}"])


def test_a_plugin_gives_empty_phases_a_category(pytester: pytest.Pytester, count: int) -> None:
    pytester.makeconftest(CATEGORIES)
    run(pytester).stdout.fnmatch_lines([f"*{count} passed, {count} prepared*"])


def test_durations_list_each_phase(pytester: pytest.Pytester, count: int) -> None:
    shown = run(pytester, "--durations=0", "-vv").stdout.str()
    assert {
        when: len(re.findall(rf"^\S+s {when} ", shown, re.MULTILINE)) for when in ("setup", "call", "teardown")
    } == {
        "setup": count,
        "call": count,
        "teardown": count,
    }


def test_results_do_not_stay_on_reports(pytester: pytest.Pytester, count: int) -> None:
    pytester.makeconftest(
        """
        def pytest_terminal_summary(terminalreporter):
            reports = [report for kept in terminalreporter.stats.values() for report in kept]
            carried = [report for report in reports if "msprobe" in vars(report)]
            terminalreporter.line(f"{len(reports)} reports, {len(carried)} with results")
        """
    )
    run(pytester).stdout.fnmatch_lines([f"{3 * count} reports, 0 with results"])
