"""Commands of ``pytest-msprobe``: those of the core, and those that extensions add."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

from pytest_msprobe.installed_extensions import register

RESULTS = "results of a run"
RECORDED = "recorded runs"
TRAININGS = "trainings"
MACHINE = "this machine"
# The command below which those stand that msprobe has too, and that job's title.
MSPROBE = "msprobe"


class Command(NamedTuple):
    """Help of a command: one line, the arguments of an example, and its page of the documentation.

    ``module`` has add_arguments(parser) and run(arguments), and is loaded when the command line names the command.
    A command that ``passes_words`` on to another program has those after ``--`` as ``arguments.options``.
    """

    help: str
    example: str
    page: str
    module: str
    passes_words: bool = False


class CommandRegistry:
    """The commands by job, in the order of the help: those of the core first."""

    def __init__(self) -> None:
        self._jobs: dict[str, dict[str, Command]] = {job: {} for job in (RESULTS, RECORDED, TRAININGS, MACHINE)}
        self._below: dict[str, Command] = {}
        self._report_parts: list[str] = []
        _add_own(self)
        register("pytest_msprobe_register_commands", self)

    def add(self, job: str, name: str, command: Command) -> None:
        """Add ``pytest-msprobe name``, which the help lists below a job, such as ``trainings``."""
        self._jobs.setdefault(job, {})[name] = command

    def add_of_msprobe(self, name: str, command: Command) -> None:
        """Add ``pytest-msprobe msprobe name``, a command that msprobe has under this name."""
        self._below[name] = command

    def add_to_report(self, module: str) -> None:
        """Add to ``pytest-msprobe report`` what a module has of these functions.

        ``add_arguments(parser)`` adds options. ``report_runs(arguments, runs)`` returns whether it has reported the
        runs in place of the usual reports. ``write_tables(journal, folder)`` adds tables to those of ``--csv``.
        ``about_run(journal)`` returns an `AboutRun` for the page of ``--html``, None for another kind of run.
        """
        if module not in self._report_parts:
            self._report_parts.append(module)

    @property
    def jobs(self) -> Mapping[str, Mapping[str, Command]]:
        """The commands of each job by their names."""
        return {job: commands for job, commands in self._jobs.items() if commands}

    @property
    def of_msprobe(self) -> Mapping[str, Command]:
        """The commands below ``msprobe``."""
        return self._below

    @property
    def report_parts(self) -> list[str]:
        """The modules that add to ``report``."""
        return self._report_parts

    def __iter__(self) -> Iterator[tuple[str, Command]]:
        """Yield each command with the words that call it, such as ``msprobe series``."""
        for commands in self._jobs.values():
            yield from commands.items()
        for name, command in self._below.items():
            yield f"{MSPROBE} {name}", command


@cache
def commands() -> CommandRegistry:
    """Return the commands that this installation has."""
    return CommandRegistry()


def _add_own(registry: CommandRegistry) -> None:
    registry.add(
        RESULTS,
        "report",
        Command(
            "write reports from the journal of a run",
            "journal.jsonl --junit report.xml --html report.html",
            "journal.md",
            "pytest_msprobe.commands.report",
        ),
    )
