from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(*words: str, folder: Path = EXAMPLES) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", str(EXAMPLES / "pytest.ini"), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_recorded_step_passes() -> None:
    done = run("--msprobe-dump=check_a_dump/dump.json", "--msprobe-device=cpu")
    assert done.returncode == pytest.ExitCode.OK, done.stdout


@pytest.mark.parametrize("folder", ["user_tests", pytest.param("record_and_check", marks=pytest.mark.slow)])
def test_the_examples_of_tests_pass(folder: str) -> None:
    done = run(folder)
    assert done.returncode == pytest.ExitCode.OK, done.stdout


@pytest.mark.slow
def test_the_faulty_device_fails_in_softmax_and_nowhere_else() -> None:
    done = run(
        "--msprobe-dump=../check_a_dump/dump.json", "--msprobe-device=faulty", "-rf", folder=EXAMPLES / "faulty_device"
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert failed
    assert all("Functional.softmax" in line for line in failed)
