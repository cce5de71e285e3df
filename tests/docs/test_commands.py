"""Every command that the documentation shows is run, as the reader would run it.

The format, in README.md and docs/:

* A block that begins with ```` ```console ```` holds commands, on lines that start with ``$ ``; one that ends with a
  backslash goes on in the next line. Other lines are what the command above them prints, lines or parts of lines in
  their order; ``...`` leaves something out. Numbers with a point, the lengths of rules and the names of machines are
  not compared, because they differ from machine to machine.
* A page's commands run one after another, in one empty folder that holds a copy of ``examples``. The programs of this
  environment (pytest, pytest-msprobe, python) are found first.
* Comments that the reader does not see, on a line of their own before a block:
  ``<!-- exit 1 -->``       the commands of the next block end with this status; without it, with 0
  ``<!-- needs mindspore -->``   the next block is left out where this module is not installed
  ``<!-- in the repository with .venv-npu -->``   the next block runs there, and is left out without this environment
  ``<!-- copy PATH [NAME] -->``  a file or folder of the repository is copied here first (as NAME, else its own name)

Other code that is shown (```` ```python ````, indented text) is not run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.nightly import nightly_but

ROOT = Path(__file__).parents[2]
WRITTEN = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in WRITTEN if "```console" in page.read_text()]

# What most users read, and what takes a few seconds.
DAILY = [
    ROOT / "README.md",
    *(
        ROOT / "docs" / f"{name}.md"
        for name in """across-frameworks api/pytest_msprobe ci communication comparing first-check first-comparison
        from-msprobe graph install mindspore overflow reading-a-failure standards train-and-inference user-guide
        weight-sync your-functions""".split()
    ),
]

# A comment for the runner, or a block of commands, whichever comes next.
_STEP = re.compile(
    r"^<!-- (?P<word>exit|needs|copy|in the repository with) (?P<value>.+?) -->$|^```console\n(?P<block>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
# A command, and the lines below it.
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


# Python imports this when it starts.
_SITE = f"import sys; sys.path[:] = [folder for folder in sys.path if folder != {str(ROOT)!r}]"


@pytest.fixture(scope="session")
def as_installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder that holds what a wheel does, next to which nothing of the repository can be imported."""
    folder = tmp_path_factory.mktemp("installed")
    for package in ("pytest_msprobe", "hook_lib/msprobe_hooks", "standards/msprobe_standards"):
        (folder / Path(package).name).symlink_to(ROOT / package)
    (folder / "sitecustomize.py").write_text(_SITE)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", nightly_but(PAGES, *DAILY), ids=lambda path: path.name)
def test_the_commands_of_a_page_end_as_it_says(page: Path, tmp_path: Path, as_installed: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    for command, shown, where, expected in steps(page.read_text(), tmp_path):
        done = run(command, where, as_installed)
        assert done.returncode == expected, f"$ {command}\n{done.stdout}\nended with {done.returncode}, not {expected}"
        printed = done.stdout.replace(f"{where}/", "")
        assert not_printed(shown, printed) is None, f"$ {command}\n{printed}\nis shown as\n{shown}"


@pytest.mark.nightly
@pytest.mark.slow
def test_each_command_of_the_readme_that_names_an_example_runs(tmp_path: Path, as_installed: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    commands = re.findall(r"^\|.*?`((?:pytest|python)[^`]* examples/[^`]*)`", (ROOT / "README.md").read_text(), re.M)
    assert len(commands) > 5
    for command in commands:
        done = run(command, tmp_path, as_installed)
        assert done.returncode in (0, 1), f"$ {command}\n{done.stdout}"
        assert "Traceback" not in done.stdout, f"$ {command}\n{done.stdout}"


def not_printed(shown: str, printed: str) -> str | None:
    """Return the first line that a page shows and a command does not print after the lines before it."""
    lines = iter([_comparable(line) for line in printed.splitlines()])
    for line in filter(None, map(_comparable, shown.splitlines())):
        words = re.compile(rf"(?<!\w){'.*'.join(map(re.escape, line.split('...')))}(?!\w)")
        if not any(words.search(each) for each in lines):
            return line
    return None


def _comparable(line: str) -> str:
    """Return a line without what differs from run to run and from machine to machine."""
    line = re.sub(r"([=_-])\1{2,}", r"\1", line)
    line = re.sub(r"on \w+ CPU, torch [\w.+]+, \d+ threads", "on CPU", line)
    line = re.sub(r"-?\d+\.\d+(e[+-]\d+)?|\d{14}", "#", line)
    return " ".join(line.split())


@pytest.mark.parametrize(
    ("shown", "missing"),
    [
        ("13 passed\n...\nworst 0.5", None),
        ("=== 13 passed in 2.2s ===", None),
        ("3 passed", "3 passed"),
        ("worst 0.25, gelu\n13 passed", "13 passed"),
        ("worst ..., relu", "worst ..., relu"),
    ],
)
def test_what_a_page_shows_is_looked_for_line_by_line(shown: str, missing: str | None) -> None:
    printed = "13 passed\n== 13 passed in 1.93s ==\n   worst 0.25, gelu\nworst 0.125\n"
    assert not_printed(shown, printed.replace("== 13", "====== 13").replace("s ==", "s =====")) == missing


def steps(text: str, folder: Path) -> Iterator[tuple[str, str, Path, int]]:
    """Yield each command, what it is shown to print, where it runs and its status; copy files when their turn comes."""
    where, expected, wanted = folder, 0, True
    for step in _STEP.finditer(text):
        word, value = step["word"], step["value"]
        if word == "exit":
            expected = int(value)
        elif word == "needs":
            wanted = find_spec(value) is not None
        elif word == "in the repository with":
            where, wanted = ROOT, (ROOT / value / "installed").exists()
        elif word == "copy":
            source, _, name = value.partition(" ")
            copy(ROOT / source, folder / (name or Path(source).name))
        else:
            if wanted:
                yield from ((command, shown, where, expected) for command, shown in _COMMAND.findall(step["block"]))
            where, expected, wanted = folder, 0, True


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)


def run(command: str, folder: Path, as_installed: Path) -> subprocess.CompletedProcess[str]:
    # Nothing of the pytest that runs this test reaches the one that is run.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = str(as_installed)
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", "")])
    return subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def test_what_a_hidden_comment_provides_is_said_in_view() -> None:
    for page in PAGES:
        text = page.read_text()
        shown = re.sub("<!--.*?-->", "", text)
        for source in re.findall(r"<!-- copy (\S+)", text):
            assert str(Path(source).parent) in shown, f"{page.name}: {source}"
