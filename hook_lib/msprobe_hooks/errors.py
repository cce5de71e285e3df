"""What can be wrong with a dump or with recording one.

DumpError            the file as a whole cannot be used
└── RecordError      one record of a usable file is malformed
RecordingError       the dump cannot be written
ConfigError          a setting of a recording is wrong
"""

from __future__ import annotations


class DumpError(Exception):
    """A dump file cannot be used; the text names the file, what is wrong and what to do."""


class RecordError(DumpError):
    """One record is malformed; ``path`` is its place in the file, such as ``$.data["Torch.mm.0.forward"].output``."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class RecordingError(Exception):
    """A dump cannot be written; the text names the file, what is wrong and what to do."""


class ConfigError(ValueError):
    """A setting of a recording is wrong; the text names the key, the value and what is allowed."""

    def __init__(self, key: str, value: object, allowed: str) -> None:
        super().__init__(f"{key} is {value!r}; allowed: {allowed}")
        self.key = key
        self.value = value
        self.allowed = allowed
