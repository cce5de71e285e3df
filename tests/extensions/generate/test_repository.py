"""``generated_tests`` holds what the generator makes: it is made again here, compared and run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_msprobe.commands.main import main

REPOSITORY = Path(__file__).parents[3]
GENERATED = REPOSITORY / "generated_tests"


def commands() -> dict[str, list[str]]:
    """Return what ``make generated_tests`` runs, by its output folder."""
    recipe = re.search(r"^generated_tests:.*\n((?:\t.*\n)+)", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    assert recipe
    found = {}
    for line in recipe[1].splitlines():
        words = shlex.split(line)
        found[Path(words[words.index("-o") + 1]).name] = words[1:]
    return found


def contents(folder: Path) -> dict[str, bytes]:
    ours = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in ours}


@pytest.mark.parametrize("name", commands())
def test_the_generator_makes_what_is_there(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    words = commands()[name]
    words[words.index("-o") + 1] = str(tmp_path / name)
    assert main(words) == 0
    made, there = contents(tmp_path / name), contents(GENERATED / name)
    assert made.keys() == there.keys(), "run make generated_tests"
    different = [path for path in made if made[path] != there[path]]
    assert different == [], "run make generated_tests"


def test_no_other_folder_is_there() -> None:
    assert {path.name for path in GENERATED.iterdir() if path.is_dir() and path.name != "__pycache__"} == set(
        commands()
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", commands())
def test_they_pass_where_nothing_is_wrong(name: str) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--msprobe-device=cpu",
        "--import-mode=importlib",
    ]
    done = subprocess.run(
        [*command, "-c", str(REPOSITORY / "examples" / "pytest.ini"), str(GENERATED / name)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert re.search(r"^\d+ passed in", done.stdout.splitlines()[-1])


def test_they_are_formatted_and_imports_are_in_order() -> None:
    ruff = [sys.executable, "-m", "ruff"]
    subprocess.run([*ruff, "format", "--isolated", "--line-length=120", "--check", str(GENERATED)], check=True)
    subprocess.run(
        [*ruff, "check", "--isolated", "--line-length=120", "--select=E,F,I,W,B", str(GENERATED)], check=True
    )
