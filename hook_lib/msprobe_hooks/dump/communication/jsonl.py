"""``communication.jsonl`` next to a dump: when each communication began and ended, written at once.

A record is in ``dump.json`` once its call is over, and that is written in blocks; of a rank that was killed or
hangs these lines show what it was in. A line of a call that begins is its record without values, so that its partners
can be found. Readers of dumps ignore the file, and a dump is whole without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from msprobe_hooks.dump.json_lines import JsonLines
from msprobe_hooks.errors import DumpError
from msprobe_hooks.json_decoding import read_json_lines

FILE: Final = "communication.jsonl"

#: A call begins; it has returned a handle that must be waited for; it is over; it raised an exception.
Event = Literal["began", "launched", "ended", "raised"]


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happened to a call, by the name of its record; ``time`` is in seconds since 1970.

    Where a call began there are its arguments, as in a record but for the values of tensors.
    """

    event: Event
    record: str
    time: float
    input_args: list[Any] = []
    input_kwargs: dict[str, Any] = {}

    @property
    def body(self) -> dict[str, Any]:
        """The record of a call that began, as far as it is known."""
        return {"input_args": self.input_args, "input_kwargs": self.input_kwargs}


class CommunicationLines(JsonLines):
    """The file of one step and rank while it is written."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is the dump's."""
        super().__init__(folder / FILE)


def read_lines(folder: Path) -> list[Line]:
    """Return the lines of ``communication.jsonl`` in their order, none where there is no file.

    The last line of a process that was killed may be incomplete and is left out. Raises DumpError for any other that
    cannot be read, since a call that never returned may be in it.
    """
    lines, problems = read_json_lines(folder / FILE, Line)
    if problems:
        raise DumpError(f"{problems[0]}; copy the file again, or remove it to judge without hangs and waits")
    return lines
