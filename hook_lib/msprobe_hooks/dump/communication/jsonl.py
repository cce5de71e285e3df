"""``communication.jsonl`` next to a dump: when each communication began and ended, written at once.

A record is in ``dump.json`` once its call is over, and that is written in blocks; of a rank that was killed or
hangs these lines show what it was in. A line of a call that begins is its record without values, so that its partners
can be found. Readers of dumps ignore the file, and a dump is whole without it.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from msprobe_hooks.dump.writer import FILE_MODE, as_json, write_error
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


class CommunicationLines:
    """The file of one step and rank while it is written; each line is with the system when a method returns."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is the dump's; the file is made when there is something to write."""
        self._path = folder / FILE
        self._file: int | None = None
        self._size = 0

    def write(self, line: Line) -> None:
        """Append a line. Raises RecordingError where the disk refuses."""
        text = as_json(line) + b"\n"
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, FILE_MODE)
            done = os.write(self._file, text)
            if done < len(text):
                # Of a disk that is full now, the system took a part of the line.
                os.ftruncate(self._file, self._size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise write_error(self._path, "written", error) from None
        self._size += len(text)

    def remove(self) -> None:
        """Delete the file, closed, where that is possible."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            file, self._file = self._file, None
            with suppress(OSError):
                os.close(file)


def read_lines(folder: Path) -> list[Line]:
    """Return the lines of ``communication.jsonl`` in their order, none where there is no file.

    Incomplete lines, as the last one of a process that was killed, are left out.
    """
    return read_json_lines(folder / FILE, Line)
