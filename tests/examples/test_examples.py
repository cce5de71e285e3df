from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.forked import Forked

EXAMPLES = Path(__file__).parents[2] / "examples"
PYTEST = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(forked: Forked) -> Run:
    """Run pytest in a folder of the examples, with their settings."""

    def run(*words: str, folder: Path = EXAMPLES) -> subprocess.CompletedProcess[str]:
        return forked.run(PYTEST, folder, "-p", "no:cacheprovider", "-c", str(EXAMPLES / "pytest.ini"), *words)

    return run


@pytest.mark.slow
def test_the_recorded_step_passes(run: Run) -> None:
    done = run("--msprobe-dump=check_a_dump/dump.json", "--msprobe-device=cpu")
    assert done.returncode == pytest.ExitCode.OK, done.stdout


@pytest.mark.parametrize("folder", ["user_tests", pytest.param("record_and_check", marks=pytest.mark.slow)])
def test_the_examples_of_tests_pass(run: Run, folder: str) -> None:
    done = run(folder)
    assert done.returncode == pytest.ExitCode.OK, done.stdout


@pytest.mark.slow
def test_the_faulty_device_fails_in_softmax_and_nowhere_else(run: Run) -> None:
    done = run(
        "--msprobe-dump=../check_a_dump/dump.json", "--msprobe-device=faulty", "-rf", folder=EXAMPLES / "faulty_device"
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert failed
    assert all("Functional.softmax" in line for line in failed)
