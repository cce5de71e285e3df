"""The command itself."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

import pytest_msprobe.commands.main as commands
from pytest_msprobe.commands.main import DOCUMENTATION, listed_commands, main, make_parser, split_off
from pytest_msprobe.commands.registry import Command
from pytest_msprobe.commands.registry import commands as registered_commands
from tests.support.journals import make_judged, write_journal
from tests.support.requirements import require

NAMED = list(registered_commands())
PROGRAM = "import sys; from pytest_msprobe.commands.main import main; sys.exit(main(sys.argv[1:]))"


def printed_before_exit(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"pytest-msprobe {version('pytest-msprobe')}\n"


def test_the_help_lists_every_command_by_job_within_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed_before_exit(capsys, "--help")
    places = [shown.index(f"\n{job}:\n") for job in listed_commands()] + [
        shown.index(f"\n  {name} ") for texts in listed_commands().values() for name in texts
    ]
    assert min(places) > 0
    assert [line for line in shown.partition("results of a run:")[2].splitlines()[:-1] if len(line) > 80] == []


def test_there_are_at_most_eleven_commands() -> None:
    assert len([name for texts in listed_commands().values() for name in texts]) <= 11


def test_the_help_of_msprobe_lists_the_commands_that_msprobe_has_too(capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed_before_exit(capsys, "msprobe", "--help")
    assert all(f"\n  {name} " in shown for name in registered_commands().of_msprobe)


def test_the_help_imports_no_command() -> None:
    code = (
        "import sys; from pytest_msprobe.commands.main import make_parser; make_parser([]).format_help(); "
        "print([name for name in sys.modules if name.endswith('_command') or name == 'pytest_msprobe.commands.report'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(("name", "command"), NAMED, ids=[name for name, _ in NAMED])
def test_the_help_of_a_command_has_an_example_that_it_understands_and_a_page(
    capsys: pytest.CaptureFixture[str], name: str, command: Command
) -> None:
    shown = printed_before_exit(capsys, *name.split(), "--help")
    assert f"example:\n  pytest-msprobe {name} {command.example}\n" in shown
    assert f"documentation: {DOCUMENTATION}/{command.page}\n" in shown
    words = [*name.split(), *shlex.split(command.example)]
    assert callable(make_parser(words).parse_args(split_off(words)[0]).run)
    assert (Path(__file__).parents[2] / "docs" / command.page).is_file()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["reprot"], "COMMAND 'reprot': not one of report, "),
        (["reprot"], "; did you mean 'report'?\n"),
        (
            ["report", "--junit-family", "jenkisn", "x"],
            "--junit-family 'jenkisn': not one of pytest, jenkins; did you mean 'jenkins'?",
        ),
        (["compare", "a", "b"], "; that is an option of pytest: pytest --msprobe-compare PATH\n"),
        (["check", "a"], "; that is an option of pytest: pytest --msprobe-dump PATH\n"),
        (["report", "--junit-family", "zip", "x"], "--junit-family 'zip': not one of pytest, jenkins\n"),
    ],
)
def test_an_unknown_name_is_answered_with_the_one_that_was_meant(
    capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


def test_no_command_at_all_is_answered_with_their_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    shown = capsys.readouterr().err
    assert all(f"  {name} " in shown for name in ("report", "show", "graph"))


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("pytest-msprobe repo", ["report "]),
        ("pytest-msprobe report --junit-f", ["--junit-family "]),
        ("pytest-msprobe report --junit-family ", ["pytest", "jenkins"]),
    ],
)
def test_a_shell_completes_commands_options_and_choices(tmp_path: Path, line: str, completed: list[str]) -> None:
    require(find_spec("argcomplete") is not None, "argcomplete")
    answer = tmp_path / "answer"
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line))}
    environment = {**os.environ, **asked, "_ARGCOMPLETE_STDOUT_FILENAME": str(answer)}
    subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True)
    assert answer.read_text().split("\v") == completed


def test_argcomplete_finds_its_mark_where_it_looks_for_it() -> None:
    assert "PYTHON_ARGCOMPLETE_OK" in Path(commands.__file__).read_text()[:1024]


def test_where_no_one_reads_any_more_a_command_ends_without_a_word(tmp_path: Path) -> None:
    journal = write_journal(
        tmp_path / "run.jsonl", *(make_judged(f"Torch.mul.{i}.forward", "fail", 3.0) for i in range(40))
    )
    command = [sys.executable, "-c", PROGRAM, "report", str(journal)]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")
