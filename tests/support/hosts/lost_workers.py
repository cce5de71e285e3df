"""A worker that dies and cannot be started again, as those of a lost host; no ssh is needed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_msprobe.journal import read_journal

# The first worker takes its Python along at its first item, and the second one waits for that.
LOSING = """
import os
import time
from pathlib import Path

def pytest_runtest_setup(item):
    if os.environ["PYTEST_XDIST_WORKER"] == "gw0":
        Path("python").unlink()
        os._exit(7)
    while not Path("gw0-is-down").exists():
        time.sleep(0.01)

def pytest_testnodedown(node, error):
    if error:
        Path(f"{node.gateway.id}-is-down").touch()
"""
JOURNAL = "run.jsonl"


def losing_one_of_two(pytester: pytest.Pytester, conftest: str = LOSING) -> list[str]:
    """Write the conftest.py, and return options by which a run has two workers, one with a Python of its own."""
    pytester.makeconftest(conftest)
    python = pytester.path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return ["-d", "--tx", f"popen//python={python}", "--tx", "popen", f"--msprobe-journal={JOURNAL}"]


def assert_one_is_lost(result: pytest.RunResult, records: dict[str, object]) -> None:
    """Assert that each record has run, that one crashed and that the others passed."""
    assert result.ret == pytest.ExitCode.TESTS_FAILED, result.stdout.str() + result.stderr.str()
    entries = read_journal(Path(JOURNAL)).entries.values()
    assert {entry.result.record for entry in entries} == records.keys()
    assert sorted(entry.outcome for entry in entries) == ["crash", *["pass"] * (len(records) - 1)]
