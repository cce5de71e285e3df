# PYTHON_ARGCOMPLETE_OK
"""``pytest-msprobe``: commands on what runs and recordings have left, which are not test runs."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Any, NoReturn

from pytest_msprobe.commands.registry import MSPROBE, Command, commands
from pytest_msprobe.errors import USER_ERRORS
from pytest_msprobe.reports.text import printable

# As of a program that SIGPIPE has ended.
_NOBODY_READS = 141

DOCUMENTATION = "https://github.com/pytest-msprobe/pytest-msprobe/blob/main/docs"


_WIDTH = 17
_MSPROBE_HELP = "commands that msprobe has too, with its names and its files"
_INVALID_CHOICE = re.compile(r"argument (.+): invalid choice: (.+) \(choose from .+\)$")


class _Parser(argparse.ArgumentParser):
    """A parser that answers an unknown choice with the one that was probably meant."""

    def error(self, message: str) -> NoReturn:
        if match := _INVALID_CHOICE.match(message):
            from pytest_msprobe.errors import not_one_of

            name, value = match[1], match[2].strip("'")
            message = f"{name} {value!r}: {not_one_of(value, self._choices(name))}{_of_pytest(value)}"
        super().error(message)

    def _choices(self, name: str) -> Collection[str]:
        """Return the choices of the argument that a message names as ``-o/--option`` or by its metavar."""
        for action in self._actions:
            if action.choices is not None and name in ("/".join(action.option_strings), action.metavar, action.dest):
                return list(action.choices)
        return ()


def _of_pytest(word: str) -> str:
    """Return, after a semicolon, the option of pytest that a word may be meant for; empty for any other word."""
    from pytest_msprobe.run.option_data import written_names

    option = "--msprobe-dump" if word == "check" else f"--msprobe-{word}"
    return f"; that is an option of pytest: pytest {option} PATH" if option in written_names() else ""


def make_parser(words: Collection[str]) -> argparse.ArgumentParser:
    """Return the parser, with the arguments of those commands that ``words`` name."""
    registry = commands()
    parser = _Parser(
        prog="pytest-msprobe",
        description="Post-process the results of pytest --msprobe-* runs, inspect recorded runs and follow trainings.",
        epilog=f"{_listed(listed_commands())}\npytest-msprobe COMMAND --help shows the options of a command and an "
        f"example.\nDocumentation: {DOCUMENTATION}/command-line.md",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('pytest-msprobe')}")
    group: Any = parser.add_subparsers(required=True, metavar="COMMAND", help="one of the commands below")
    for of_job in registry.jobs.values():
        for name, command in of_job.items():
            _add_command(group, name, "", command, is_loaded=name in words)
    below = group.add_parser(
        MSPROBE,
        description=f"{_MSPROBE_HELP[0].upper()}{_MSPROBE_HELP[1:]}.",
        epilog=_listed({"commands": {name: command.help for name, command in registry.of_msprobe.items()}}),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    group_below: Any = below.add_subparsers(required=True, metavar="COMMAND", help="one of the commands below")
    for name, command in registry.of_msprobe.items():
        _add_command(group_below, name, f"{MSPROBE} ", command, is_loaded=name in words)
    return parser


def listed_commands() -> dict[str, dict[str, str]]:
    """Return what the help says of each command, by job."""
    jobs = {job: {name: command.help for name, command in of.items()} for job, of in commands().jobs.items()}
    return {**jobs, "commands of msprobe": {MSPROBE: _MSPROBE_HELP}}


def _listed(jobs: Mapping[str, Mapping[str, str]]) -> str:
    return "".join(
        f"{job}:\n" + "".join(f"  {name.ljust(_WIDTH)} {text}\n" for name, text in texts.items()) + "\n"
        for job, texts in jobs.items()
    )


def _add_command(group: Any, name: str, above: str, command: Command, *, is_loaded: bool) -> None:
    parser = group.add_parser(
        name,
        description=f"{command.help[0].upper()}{command.help[1:]}.",
        epilog=f"example:\n  pytest-msprobe {above}{name} {command.example}\n\n"
        f"documentation: {DOCUMENTATION}/{command.page}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if is_loaded:
        module = import_module(command.module)
        module.add_arguments(parser)
        parser.set_defaults(run=module.run)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0, 1 where something was found wrong, 2 where it could not run."""
    words = list(sys.argv[1:] if argv is None else argv)
    if "_ARGCOMPLETE" in os.environ:
        _complete()
    own, others = split_off(words)
    if not own:
        make_parser(own).print_help(sys.stderr)
        return 2
    arguments = make_parser(own).parse_args(own)
    if others:
        arguments.options = others
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except USER_ERRORS as error:
        print(printable(f"pytest-msprobe: {error}"), file=sys.stderr)
        return 2
    except BrokenPipeError:
        # Who reads wants no more, as head does. Python would write what is left at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _NOBODY_READS
    return status


def _complete() -> None:
    """Complete the command line for a shell, where argcomplete is installed, and end the process."""
    with contextlib.suppress(ImportError):
        import argcomplete

        argcomplete.autocomplete(make_parser(os.environ.get("COMP_LINE", "").split()))


def split_off(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the words that argparse reads, and those after ``--`` of a command that passes them to another program.

    argparse takes these only if no option of the command follows its first argument.
    """
    if "--" not in words or not any(words[0] == name and command.passes_words for name, command in commands()):
        return words, []
    end = words.index("--")
    return words[:end], words[end + 1 :]
