"""``pytest-msprobe``: what is not a test run."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version

from pytest_msprobe.errors import USER_ERRORS
from pytest_msprobe.reports.text import printable

# As of a program that SIGPIPE has ended.
_NOBODY_READS = 141

# Each is a module of pytest_msprobe.commands with add_arguments(parser) and run(arguments), loaded when asked for.
_COMMANDS: dict[str, str] = {
    "anomaly-analyse": "list the earliest anomalies of watched training over all ranks",
    "bisect": "find the call whose precision moves a number of a program, by running it again",
    "code-mapping": "tell the lines of the program that the kernels of a MindSpore graph come from",
    "doctor": "tell what this machine has for a check, and what a dump needs: the beginning of a bug report",
    "environment": "write what a training is started with, without the training itself",
    "follow": "check the steps of a training while it runs, as they arrive in its spool folder",
    "generate": "write stand-alone tests for records of a dump, and run them",
    "graph": "write the graph of a recorded run, or of two, as a page or for msprobe's TensorBoard viewer",
    "merge-results": "merge the comparison tables of many ranks into one workbook",
    "precision-compare": "judge a finished run by another, as an NPU's by a GPU's",
    "replay": "judge saved failing cases again, on any device",
    "report": "make reports from the journal of a run, also of one that died",
    "show": "tell what a file of tensors, a record or a saved case holds, or where two of them differ",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0, 1 where something was found wrong, 2 where it could not run."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="pytest-msprobe", description="Work on what pytest --msprobe-... left.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('pytest-msprobe')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, text in _COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        if name in words:
            module = import_module(f"pytest_msprobe.commands.{name.replace('-', '_')}")
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    own, others = _parted(words)
    arguments = parser.parse_args(own)
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


def _parted(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the words that argparse reads, and those after ``--`` of a command that gives them to another program.

    argparse takes these only where none of the command's options stand behind its first argument.
    """
    if words[:1] != ["follow"] or "--" not in words:
        return words, []
    end = words.index("--")
    return words[:end], words[end + 1 :]
