"""What a comparison by the fast path keeps of its calls to the end, against what plugins heard."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.runs import run_pytest

LISTENER = """
import copy

heard = []

def pytest_runtest_logreport(report):
    heard.append((report.nodeid, report.when, copy.deepcopy(vars(report))))

def pytest_terminal_summary(terminalreporter, config):
    kept = [report for name in ("", "passed", "skipped", "failed") for report in terminalreporter.stats.get(name, ())]
    packed = [report for report in kept if type(report).__name__ == "PackedReport"]
    by_place = {(report.nodeid, report.when): vars(report) for report in packed}
    different = [each for *place, each in heard if by_place.get(tuple(place), each) != each]
    print(f"packed {len(packed)} of {len(kept)}, {len(heard)} heard, different: {different}")
"""


def test_a_report_is_at_the_end_what_plugins_heard(pytester: pytest.Pytester, sides: list[Path]) -> None:
    pytester.makeconftest(LISTENER)
    # pytest's own path keeps its reports as they are.
    words = ("--msprobe-compare", sides[0], "--msprobe-golden", sides[1], "-s", "-o", "msprobe_fast_path=true")
    result = run_pytest(pytester, *words)
    # The call that differs, and the last one, go through hooks of pytest.
    result.stdout.fnmatch_lines(["*packed 204 of 210, 210 heard, different: []"])
    result.assert_outcomes(passed=68, failed=1, skipped=1)
