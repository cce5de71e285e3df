"""Every command that the documentation shows is run, as the reader would run it.

The format, in README.md and docs/*.md:

* A block that begins with ```` ```console ```` holds commands, on lines that start with ``$ ``; one that ends with a
  backslash goes on in the next line. Other lines are what a command prints.
* A page's commands run one after another, in one empty folder that holds a copy of ``examples``. The programs of this
  environment (pytest, pytest-msprobe, python) are found first.
* Comments that the reader does not see, on a line of their own before a block:
  ``<!-- exit 1 -->``       the commands of the next block end with this status; without it, with 0
  ``<!-- needs mindspore -->``   the next block is left out where this module is not installed
  ``<!-- in the repository with .venv-npu -->``   the next block runs there, and is left out without this environment
  ``<!-- copy PATH [NAME] -->``  a file or folder of the repository is copied here first (as NAME, else its own name)
  ``<!-- shown -->``         the indented block that follows is what the commands of the last block printed: each of its
                             lines is one of theirs, with numbers nearby and any text for three dots

Other code that is shown (```` ```python ````, indented text) is not run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.nightly import nightly_but
from tests.support.shown_output import says

ROOT = Path(__file__).parents[2]
WRITTEN = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = [page for page in WRITTEN if "```console" in page.read_text()]

# What most users read, and what takes a few seconds.
DAILY = [
    ROOT / "README.md",
    *(
        ROOT / "docs" / f"{name}.md"
        for name in """across-frameworks ci communication comparing from-msprobe graph install mindspore overflow
        programs standards train-and-inference user-guide weight-sync your-functions""".split()
    ),
]

# A comment for the runner, or a block of commands, whichever comes next.
_STEP = re.compile(
    r"^<!-- (?P<word>exit|needs|copy|in the repository with) (?P<value>.+?) -->$|^```console\n(?P<block>.*?)^```$"
    r"|^<!-- shown -->\n\n(?P<shown>(?:    [^\n]*\n|\n)+)",
    re.MULTILINE | re.DOTALL,
)
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)$", re.MULTILINE)


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
    printed = ""
    for step in steps(page.read_text(), tmp_path):
        if isinstance(step, Shown):
            missing = [line for line in step.lines if not says(printed, line)]
            assert missing == [], f"{printed}\nhas no such line"
            continue
        done = run(step.text, step.folder, as_installed)
        printed = done.stdout if step.first else printed + done.stdout
        assert done.returncode == step.status, f"$ {step.text}\n{done.stdout}\nended with {done.returncode}"


@dataclass(frozen=True)
class Command:
    """A command, the folder that it runs in, its status at the end, and whether it begins a block."""

    text: str
    folder: Path
    status: int
    first: bool


@dataclass(frozen=True)
class Shown:
    """Lines that the commands of the last block print."""

    lines: list[str]


def steps(text: str, folder: Path) -> Iterator[Command | Shown]:
    """Yield each command and what is shown of its output, and copy files when their turn comes."""
    where, expected, wanted, ran = folder, 0, True, True
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
        elif step["shown"]:
            lines = [line.strip() for line in step["shown"].splitlines()]
            if ran:
                yield Shown([line for line in lines if line.strip(".")])
        else:
            commands = _COMMAND.findall(step["block"]) if wanted else []
            yield from (Command(command, where, expected, at == 0) for at, command in enumerate(commands))
            where, expected, wanted, ran = folder, 0, True, wanted


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


def test_a_line_is_said_with_numbers_nearby_and_any_text_for_three_dots() -> None:
    output = "a.json::mm: 148 of 256 wrong, up to 11.6 u;\n  at [7, 1] 75"
    assert says(output, "mm: 140 of 256 wrong, ...; at [7, 1] 75")
    assert not says(output, "mm: 14 of 256 wrong")
    assert not says(output, "bmm: 148 of 256 wrong")


def test_what_is_shown_belongs_to_the_commands_before_it(tmp_path: Path) -> None:
    page = "```console\n$ a\n$ b\n```\n\nprints\n\n<!-- shown -->\n\n    one\n    ...\n      two\n\nand\n\n    three\n"
    first, second, shown = steps(page, tmp_path)
    assert (first, second) == (Command("a", tmp_path, 0, True), Command("b", tmp_path, 0, False))
    assert shown == Shown(["one", "two"])


def test_nothing_is_expected_of_commands_that_are_left_out(tmp_path: Path) -> None:
    page = "<!-- needs no_such_module -->\n```console\n$ a\n```\n\n<!-- shown -->\n\n    one\n"
    assert list(steps(page, tmp_path)) == []
