"""Errors that a user can correct: unusable options, devices, files and commands.

UserError            what was given cannot be used
├── OptionError      an option, a setting or a marker
├── DeviceError      a device
├── WorkerError      workers that do nothing but die
├── HostError        another host, on which workers were to run
├── JournalError     a journal
├── BaselineError    a recorded baseline
├── CaseError        a saved case
├── CheckpointError  a checkpoint
├── RulesError       a file of rules
├── KeywordError     an expression that chooses records
├── FolderError      a folder to write to
├── FreshRunError    pytest could not run what was generated
└── CommandError     anything else that a command was given
    └── ProgramError     a program that a command was to run

Errors about dumps and monitored runs are in ``msprobe_hooks.errors``. Code that finds such an error raises it
and knows nothing of who asked: pytest's hooks report it as a usage error (`run.usage`), ``pytest-msprobe`` as a line on
stderr.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

#: All that a face translates, once, into its own kind of message; `__getattr__` makes it.
USER_ERRORS: tuple[type[Exception], ...]


class UserError(Exception):
    """The user's input cannot be used: the ``problem``, the ``file`` (or place in one) and what to do about it."""

    #: Whether the text is one line: names of others that it holds start no line of their own.
    is_one_line = True

    def __init__(self, problem: str, *, file: Path | str | None = None, remedy: str = "") -> None:
        where = "" if file is None else f"{file}: "
        text = f"{where}{problem}{'; ' if remedy else ''}{remedy}"
        from msprobe_hooks.messages import escaped_name

        super().__init__(escaped_name(text) if self.is_one_line else text)
        self.problem = problem
        self.file = file
        self.remedy = remedy


class OptionError(UserError):
    """An option, an ini setting or a marker is wrong; the text says what is allowed."""


def not_one_of(name: object, allowed: Iterable[str]) -> str:
    """Return ``not one of x, y``, with the name that was probably meant."""
    from msprobe_hooks.messages import did_you_mean

    names = list(allowed)
    return f"not one of {', '.join(names)}{did_you_mean(name, names)}"


def unknown(kind: str, name: object, allowed: Iterable[str]) -> str:
    """Return the problem of an unknown ``kind`` of name, such as ``key``; ``name`` may be long, or no text."""
    from msprobe_hooks.messages import did_you_mean
    from msprobe_standards.validation import shown

    names = list(allowed)
    return f"unknown {kind} {shown(name)}{did_you_mean(name, names) or ';'} known are {', '.join(names)}"


def unknown_value(option: str, value: str, allowed: Iterable[str]) -> OptionError:
    """Return the error of an option whose value is not one of those that are allowed."""
    return OptionError(f"{option} {value!r}: {not_one_of(value, allowed)}")


def no_effect(option: str, needed: str) -> OptionError:
    """Return the error of an option that is passed without the one it belongs to; ``needed`` is as ``--option DIR``."""
    return OptionError(f"{option} has no effect without {needed.partition(' ')[0]}", remedy=f"pass {needed}")


class DeviceError(UserError):
    """A device cannot be used; the text names the missing piece and what to do, and may hold lines of its output."""

    is_one_line = False


class WorkerError(UserError):
    """Workers do nothing but die; the text may hold lines of their output."""

    is_one_line = False


class HostError(UserError):
    """Another host cannot take part in a run."""


class JournalError(UserError):
    """A journal cannot be used."""


class BaselineError(UserError):
    """A recorded baseline cannot be used."""


class CaseError(UserError):
    """A saved case cannot be used."""


class CheckpointError(UserError):
    """A checkpoint cannot be used."""


class RulesError(UserError):
    """A file of rules cannot be used."""


class KeywordError(UserError):
    """An expression that chooses records cannot be read."""


class FolderError(UserError):
    """A folder cannot be written to."""


class FreshRunError(UserError):
    """pytest could not run a module; the text holds the last lines of its output."""

    is_one_line = False


class CommandError(UserError):
    """A command cannot do what it was asked."""


class ProgramError(CommandError):
    """A program that a command runs is of no use to it; the text holds lines, such as the program's last ones."""

    is_one_line = False


def __getattr__(name: str) -> Any:
    # Every start of pytest loads this module, and should not load the hook library.
    if name != "USER_ERRORS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from msprobe_hooks.errors import ConfigError, DumpError, MonitorError, RecordingError, StartError

    return UserError, DumpError, RecordingError, MonitorError, StartError, ConfigError
