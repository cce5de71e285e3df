"""A file of JSON lines while it is written; each line is with the system when a method returns."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from msprobe_hooks.dump.writer import FILE_MODE, as_json, write_error


class JsonLines:
    """A file to which lines are appended; it is made when there is something to write."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._size = 0

    def write(self, line: msgspec.Struct) -> None:
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
