"""A run in which no test uses Hypothesis ends without importing it, which its plugin does for its summary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.dumps.dump_files import Json

CHECK = ("--msprobe-dump=dump.json", "--msprobe-device=cpu")
PLUGINS = ("-p", "_hypothesis_pytestplugin", "-p", "said")
SAID = """
import sys

def pytest_unconfigure():
    print("\\nhypothesis:", "hypothesis" in sys.modules)
"""
FAILING = """
from hypothesis import given, strategies

@given(strategies.integers())
def test_small(number):
    assert number < 100
"""


@pytest.fixture
def run(pytester: pytest.Pytester, write_dump: Callable[..., Path], records: Json) -> Callable[..., pytest.RunResult]:
    """Check the records in a process of its own, with a plugin that prints whether Hypothesis was imported."""
    write_dump(records)
    pytester.makepyfile(said=SAID)
    pytester.syspathinsert()
    return lambda *options: pytester.runpytest_subprocess(*CHECK, *PLUGINS, "-s", *options)


def test_a_check_does_not_import_hypothesis(run: Callable[..., pytest.RunResult]) -> None:
    run().stdout.fnmatch_lines(["hypothesis: False"])


def test_pytests_own_path_leaves_its_plugin_alone(run: Callable[..., pytest.RunResult]) -> None:
    run("-o", "msprobe_fast_path=false").stdout.fnmatch_lines(["hypothesis: True"])


@pytest.mark.parametrize("workers", ["0", pytest.param("1", marks=pytest.mark.slow)])
def test_what_a_test_did_with_it_is_still_printed(
    run: Callable[..., pytest.RunResult], pytester: pytest.Pytester, workers: str
) -> None:
    test = pytester.makepyfile(test_small=FAILING)
    result = run(f"-n{workers}", "--hypothesis-show-statistics", test)
    result.stdout.fnmatch_lines(["*Hypothesis Statistics*", "*test_small.py::test_small:"])
