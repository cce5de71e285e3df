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
from typing import Any, NamedTuple, NoReturn

from pytest_msprobe.errors import USER_ERRORS
from pytest_msprobe.reports.text import printable

# As of a program that SIGPIPE has ended.
_NOBODY_READS = 141

DOCUMENTATION = "https://github.com/pytest-msprobe/pytest-msprobe/blob/main/docs"


class Command(NamedTuple):
    """What the help says of a command: one line, the arguments of an example, and its page of the documentation."""

    help: str
    example: str
    page: str


#: By job, in the order of the help. Each is a module of pytest_msprobe.commands with add_arguments(parser) and
#: run(arguments), loaded when the command line names it.
COMMANDS: Mapping[str, Mapping[str, Command]] = {
    "results of a run": {
        "report": Command(
            "write reports from the journal of a run",
            "journal.jsonl --junit report.xml --html report.html",
            "journal.md",
        ),
        "replay": Command(
            "judge saved failing cases again, on any device", "failures --device cpu", "failing-cases.md"
        ),
        "generate": Command(
            "write stand-alone tests for records of a dump and run them",
            "dump.json -k softmax -o generated_tests",
            "generated-tests.md",
        ),
        "precision-compare": Command(
            "judge a finished run by another, such as NPU by GPU",
            "npu.msprobe gpu.msprobe",
            "baselines.md",
        ),
    },
    "recorded runs": {
        "show": Command("inspect a tensor, a record or a saved case; compare two", "ours.npy theirs.npy", "show.md"),
        "graph": Command(
            "draw one or two recorded runs as a graph",
            "dump.json --golden golden/dump.json --html graph.html",
            "graph.md",
        ),
        "code-mapping": Command(
            "find the source lines of the kernels of a MindSpore graph",
            "dump/rank_0 --output tables",
            "mindspore.md",
        ),
        "merge-results": Command(
            "merge the comparison tables of many ranks into one workbook",
            "-i tables -o merged -config merge.yaml",
            "comparing.md",
        ),
        "series": Command(
            "write or read msprobe's .trend.db of statistics",
            "dump -o run.trend.db",
            "monitor.md",
        ),
        "anomaly-analyse": Command(
            "list the earliest anomalies of a training over all ranks", "-d anomalies -k 5", "monitor.md"
        ),
    },
    "trainings": {
        "follow": Command(
            "check the steps of a training while it runs",
            "spool -- --msprobe-device npu:7",
            "follow.md",
        ),
        "bisect": Command(
            "find the call whose precision changes a number of a program",
            "--metric 'loss: (.*)' -- python train.py",
            "bisect.md",
        ),
        "environment": Command(
            "write a training's launch configuration without running it",
            "-o start train.sh config.yaml",
            "environment.md",
        ),
    },
    "this machine": {
        "doctor": Command(
            "report what this machine has and what a dump needs",
            "dump.json",
            "doctor.md",
        ),
    },
}
_WIDTH = 17
_INVALID_CHOICE = re.compile(r"argument (.+): invalid choice: (.+) \(choose from .+\)$")


class _Parser(argparse.ArgumentParser):
    """A parser that answers an unknown choice with the one that was probably meant."""

    def error(self, message: str) -> NoReturn:
        if found := _INVALID_CHOICE.match(message):
            from pytest_msprobe.messages import not_one_of

            name, value = found[1], found[2].strip("'")
            message = f"{name} {value!r}: {not_one_of(value, self._choices(name))}"
        super().error(message)

    def _choices(self, name: str) -> Collection[str]:
        """Return the choices of the argument that a message names as ``-o/--option`` or by its metavar."""
        for action in self._actions:
            if action.choices is not None and name in ("/".join(action.option_strings), action.metavar, action.dest):
                return list(action.choices)
        return ()


def make_parser(words: Collection[str]) -> argparse.ArgumentParser:
    """Return the parser, with the arguments of those commands that ``words`` name."""
    listed = "\n".join(f"{job}:\n{_listed(commands)}\n" for job, commands in COMMANDS.items())
    parser = _Parser(
        prog="pytest-msprobe",
        description="Post-process the results of pytest --msprobe-* runs, inspect recorded runs and follow trainings.",
        epilog=f"{listed}\npytest-msprobe COMMAND --help shows the options of a command and an example.\n"
        f"Documentation: {DOCUMENTATION}/command-line.md",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('pytest-msprobe')}")
    group: Any = parser.add_subparsers(required=True, metavar="COMMAND", help="one of the commands below")
    for commands in COMMANDS.values():
        for name, command in commands.items():
            _add_command(group, name, command, is_loaded=name in words)
    return parser


def _listed(commands: Mapping[str, Command]) -> str:
    return "\n".join(f"  {name.ljust(_WIDTH)} {command.help}" for name, command in commands.items())


def _add_command(group: Any, name: str, command: Command, *, is_loaded: bool) -> None:
    parser = group.add_parser(
        name,
        description=f"{command.help[0].upper()}{command.help[1:]}.",
        epilog=f"example:\n  pytest-msprobe {name} {command.example}\n\ndocumentation: {DOCUMENTATION}/{command.page}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if is_loaded:
        module = import_module(f"pytest_msprobe.commands.{name.replace('-', '_')}")
        module.add_arguments(parser)
        parser.set_defaults(run=module.run)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0, 1 where something was found wrong, 2 where it could not run."""
    words = list(sys.argv[1:] if argv is None else argv)
    if "_ARGCOMPLETE" in os.environ:
        _complete()
    own, others = split_off(words)
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
    if words[:1] != ["follow"] or "--" not in words:
        return words, []
    end = words.index("--")
    return words[:end], words[end + 1 :]
