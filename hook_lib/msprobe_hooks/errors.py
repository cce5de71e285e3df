"""What can be wrong with a dump, with recording one, and with the files of a watched or started run.

DumpError            the file as a whole cannot be used
├── RecordError      one record of a usable file is malformed
└── MissingCodecError    a file is compressed by what is not installed
RecordingError       the dump cannot be written
└── DiskError        the disk refuses what is written: it is full, or fails
MonitorError         the files of a watched run cannot be read or written
StartError           what a training was started with cannot be read or written
ConfigError          a setting of a recording is wrong
"""

from __future__ import annotations

from msprobe_hooks.escaping import escaped_name

_LONGEST = 300


class _OneLineError(Exception):
    """An error whose text holds names of others, which start no line of their own."""

    def __init__(self, text: str = "") -> None:
        super().__init__(escaped_name(text))


class DumpError(_OneLineError):
    """A dump file cannot be used; the text names the file, what is wrong and what to do."""


class RecordError(DumpError):
    """One record is malformed; ``path`` is its place in the file, such as ``$.data["Torch.mm.0.forward"].output``."""

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
    """Files of a watched run cannot be read or written; the text names the file, what is wrong and what to do."""


class StartError(_OneLineError):
    """What a training was started with cannot be read or written; the text names the file and what is wrong."""


class ConfigError(ValueError):
    """A setting of a recording is wrong; the text names the key, the value and what is allowed."""

    def __init__(self, key: str, value: object, allowed: str) -> None:
        super().__init__(f"{key} is {shown(value)}; allowed: {allowed}")
        self.key = key
        self.value = value
        self.allowed = allowed


def shown(value: object) -> str:
    """Return a value as a message shows it, which is not at full length where it is long."""
    try:
        return clipped(repr(value))
    except ValueError:
        return "a number of thousands of digits"


def clipped(text: str) -> str:
    """Return a text as a part of a message, not at full length where it is long."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
