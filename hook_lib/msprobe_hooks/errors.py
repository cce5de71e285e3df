"""What can be wrong with a dump.

DumpError            the file as a whole cannot be used
└── RecordError      one record of a usable file is malformed
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
