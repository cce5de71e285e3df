"""A start of pytest without anything of this plugin."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

COUNT = """
import sys

def pytest_sessionfinish():
    ours = ("pytest_msprobe", "msprobe_hooks", "msprobe_standards")
    names = [name for name in sys.modules if name.split(".")[0] in ours]
    print("loaded:", *names)
"""

MOST = 22


def loaded(folder: Path, test: str, *words: str) -> set[str]:
    (folder / "conftest.py").write_text(COUNT)
    (folder / "test_mine.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:xdist", "-p", "no:cacheprovider", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = (line for line in done.stdout.splitlines() if "loaded:" in line)
    return set(line.partition("loaded:")[2].split())


def test_a_start_without_anything_of_ours_loads_few_modules_and_nothing_of_the_hook_library(tmp_path: Path) -> None:
    names = loaded(tmp_path, "def test_passes():\n    pass\n")
    assert len(names) <= MOST
    assert [name for name in names if not name.startswith("pytest_msprobe")] == []
    assert "pytest_msprobe.session_plugin" not in names


@pytest.mark.slow
@pytest.mark.parametrize("use", ["precision", "msprobe_dump_options"])
def test_a_test_that_uses_a_fixture_starts_the_session(tmp_path: Path, use: str) -> None:
    assert "pytest_msprobe.session_plugin" in loaded(tmp_path, f"def test_passes({use}):\n    pass\n")


@pytest.mark.slow
def test_a_fixture_that_is_asked_for_by_its_name_checks(tmp_path: Path) -> None:
    test = """
import torch

def test_passes(request):
    request.getfixturevalue("precision").check(torch.add, torch.ones(2), torch.ones(2))
"""
    assert "pytest_msprobe.session_plugin" in loaded(tmp_path, test, "--msprobe-device", "cpu")
    assert "pytest_msprobe.session_plugin" in loaded(tmp_path, test)


def test_errors_are_imported_without_the_hook_library() -> None:
    code = (
        "import sys, pytest_msprobe.errors; print([name for name in sys.modules if name.startswith('msprobe_hooks')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
