"""Errors of dumps, of recordings, and of the files of monitored runs and training environments.

DumpError            the file as a whole cannot be used
├── RecordError      one record of a usable file is malformed
└── MissingCodecError    a file is compressed, and the library that reads it is not installed
RecordingError       the dump cannot be written
└── DiskError        the disk is full or fails
MonitorError         the files of a monitored run cannot be read or written
StartError           the file of a training environment cannot be read or written
FeedError            recorded inputs cannot be given to a module of the running program
DifferingStepError   a step that was computed twice differs from itself
ConfigError          a setting of a recording is wrong
"""

from __future__ import annotations

from collections.abc import Iterable

from msprobe_hooks.messages import clipped, did_you_mean, escaped_name, shown

_FEW = 3


class _OneLineError(Exception):
    """An error whose text holds names of others, which start no line of their own."""

    def __init__(self, text: str = "") -> None:
        super().__init__(escaped_name(text))


class DumpError(_OneLineError):
    """A dump file cannot be used; the text names the file, what is wrong and what to do."""


class RecordError(DumpError):
    """One record is malformed; ``path`` is its place in the file, such as ``$.data["Torch.mm.0.forward"].output``.

    Args:
        path: The place of the record in the file.
        problem: What is wrong with it.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{clipped(path)}: {problem}")
        self.path = path
        self.problem = problem


class MissingCodecError(DumpError):
    """A file is compressed, and the library that reads it is not installed; the text says how to install it."""


class RecordingError(Exception):
    """A dump cannot be written; the text names the file, what is wrong and what to do."""


class DiskError(RecordingError):
    """The disk refuses what is written, because it is full or fails. It ends a recording and never a training."""


def is_mistake(error: Exception) -> bool:
    """Return whether an error of a recording that begins is one that its user can correct.

    What the disk refuses and what is not foreseen is none: it ends the recording, and the program goes on.
    """
    return isinstance(error, (ConfigError, RecordingError)) and not isinstance(error, DiskError)


class MonitorError(_OneLineError):
    """Files of a monitored run cannot be read or written; the text names the file, what is wrong and what to do."""


class StartError(_OneLineError):
    """The file of a training environment cannot be read or written; the text names the file and what is wrong."""


class FeedError(_OneLineError):
    """Recorded inputs do not fit the running program; the text names the module, the argument and both sides."""


class DifferingStepError(_OneLineError):
    """A step that was computed twice differs from itself; the text names step, rank, card and the first call."""


class ConfigError(ValueError):
    """A setting is wrong; the text names the key, the value and what is allowed.

    Args:
        key: The name of the setting.
        value: Its value, or the one entry of it that is wrong.
        allowed: What is allowed, or why nothing is, then beginning with "not supported".
        known: Names that the value may have been meant as.
        problem: The text up to the hint at a known name, where it is not made of key, value and what is allowed.
    """

    def __init__(
        self, key: str, value: object, allowed: str, *, known: Iterable[str] = (), problem: str | None = None
    ) -> None:
        if problem is None:
            label = "" if allowed.startswith("not supported") else "allowed: "
            problem = f"{key} is {shown(value)}; {label}{allowed}"
        names = [*known]
        # Of few names, all shown, a guess says no more.
        super().__init__(problem + (did_you_mean(value, names) if len(names) > _FEW else ""))
        self.key = key
        self.value = value
        self.allowed = allowed


def unknown_name(problem: str, name: str, value: object, valid: Iterable[str]) -> ConfigError:
    """Return the error for a name that is not known: ``problem`` is as in "record() has no option"."""
    valid = sorted(valid)
    allowed = ", ".join(valid)
    hint = (did_you_mean(name, valid) if len(valid) > _FEW else "") or f"; known: {allowed}"
    return ConfigError(name, value, allowed, problem=f"{problem} {shown(name)}{hint}")
