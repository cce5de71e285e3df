"""The page of public bug reports is run: its commands fail where they should, with the line that it shows."""

from __future__ import annotations

import re
import runpy
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.forked import Forked
from tests.support.shown_output import says

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "examples" / "public_bugs"
PAGE = (ROOT / "docs" / "verdict-quality.md").read_text()
SHARED = {"conftest", "simulated"}
# Before torch 2.4, a fused optimizer needs a GPU, and rms_norm is missing.
TOO_NEW = set() if hasattr(torch.nn, "RMSNorm") else {"skipped_step", "wide_weight"}
PYTEST = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"

_SECTION = re.compile(r"^### .+?(?=^###? |\Z)", re.MULTILINE | re.DOTALL)
_COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| \[.+?\]\((?P<link>.+?)\) \| .+? \| `(?P<program>\w+)` \| (?P<last>.+) \|$", re.MULTILINE)

Run = Callable[[list[str]], tuple[int, str]]


@dataclass(frozen=True)
class Entry:
    """A row of the page. ``shown`` is what the faulty commands print, empty for a report that is not found."""

    link: str
    program: str
    shown: str
    faulty: list[str]
    right: list[str]


def entries(page: str) -> Iterator[Entry]:
    """Yield the rows of the tables, with the first commands of their section."""
    for section in _SECTION.findall(page):
        for row in _ROW.finditer(section):
            lines = _COMMANDS.findall(section)[0].replace("NAME", row["program"]).splitlines()
            before = [line for line in lines if "#" not in line]
            faulty, right = (line.partition("#")[0] for line in lines if "#" in line)
            shown = row["last"].strip("`") if row["last"].startswith("`") else ""
            yield Entry(row["link"], row["program"], shown, [*before, faulty], [*before, right])


def parameter(entry: Entry) -> Any:
    """Return the parameter of tests that run an entry's programs. A compiler takes seconds to load."""
    slow = [pytest.mark.slow] if "compiled:" in entry.faulty[-1] else []
    return pytest.param(
        entry, marks=[*slow, pytest.mark.skipif(entry.program in TOO_NEW, reason="needs torch 2.4")], id=entry.program
    )


ENTRIES = list(entries(PAGE))
FOUND = [entry for entry in ENTRIES if entry.shown]


@pytest.fixture
def run(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> Run:
    """Run commands in a copy of the programs; return the exit status of the last one, and what all printed."""
    shutil.copytree(PROGRAMS, pytester.path, ignore=shutil.ignore_patterns("__pycache__", "runs"), dirs_exist_ok=True)
    monkeypatch.syspath_prepend(str(pytester.path))

    def run(commands: list[str]) -> tuple[int, str]:
        status, text = 0, ""
        for command in commands:
            program, *words = command.split()
            if program == "pytest" and any("compiled:" in word for word in words):
                # The compiler cannot be loaded twice in a process, and pytester drops what an inner run loads.
                forked: Forked = request.getfixturevalue("forked")
                done = forked.run(PYTEST, pytester.path, *words)
                status, text = done.returncode, text + done.stdout
            elif program == "pytest":
                result = pytester.runpytest_inprocess(*words)
                status, text = int(result.ret), text + result.stdout.str()
            else:
                with monkeypatch.context() as patch, warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    patch.setattr(sys, "argv", words)
                    runpy.run_path(str(pytester.path / words[0]), run_name="__main__")
                text += capsys.readouterr().out
        return status, text

    return run


@pytest.mark.parametrize("entry", [parameter(entry) for entry in FOUND])
def test_a_public_bug_is_found_and_named_as_the_page_says(entry: Entry, run: Run) -> None:
    status, output = run(entry.faulty)
    assert says(output, entry.shown), output
    assert status == (pytest.ExitCode.TESTS_FAILED if entry.faulty[-1].startswith("pytest") else 0)


@pytest.mark.parametrize("entry", [parameter(entry) for entry in FOUND])
def test_the_program_of_a_public_bug_passes_where_all_is_right(entry: Entry, run: Run) -> None:
    status, output = run(entry.right)
    assert status == pytest.ExitCode.OK, output
    assert re.search(r"\d (failed|fail,)", output) is None, output


@pytest.mark.parametrize("entry", [parameter(entry) for entry in ENTRIES if not entry.shown])
def test_a_report_passes_that_the_page_calls_not_found(entry: Entry, run: Run) -> None:
    for commands in (entry.faulty, [entry.right[-1]]):
        status, output = run(commands)
        assert status == pytest.ExitCode.OK, output


def test_the_page_has_thirty_reports_and_each_program_once() -> None:
    assert len({entry.link for entry in FOUND}) == 30
    programs = {path.stem for path in PROGRAMS.glob("*.py")} - SHARED
    assert sorted(entry.program for entry in ENTRIES) == sorted(programs)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.program)
def test_a_program_begins_with_the_report_that_the_page_links(entry: Entry) -> None:
    repository, number = re.fullmatch(r"https://github\.com/(.+)/(?:issues|pull)/(\d+)", entry.link).groups()  # type: ignore[union-attr]
    assert (PROGRAMS / f"{entry.program}.py").read_text().startswith(f'"""{repository}#{number}: ')
