"""A file that is only appended to, by one process at a time, one system call per line."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import IO

from msprobe_hooks.regular_files import require_regular
from pytest_msprobe.errors import JournalError

# What a write ends with where nothing more fits: on the disk, within a quota, within the limit on the size of a file.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class AppendedLines:
    """Appends to a file, alone. Raises JournalError where it cannot be written or is in use.

    With ``refuses_links`` a link in its place is such a file: others may write into its folder.
    """

    def __init__(self, path: Path, *, refuses_links: bool = False) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                require_regular(path)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (os.O_NOFOLLOW if refuses_links else 0)
            self._file: IO[bytes] = os.fdopen(os.open(path, flags, 0o666), "a+b", buffering=0)
        except OSError as error:
            raise JournalError(f"cannot be written: {error.strerror}", file=path) from None
        try:
            _lock(self._file, path)
        except JournalError:
            self.close()
            raise

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been written yet."""
        return self.path.stat().st_size == 0

    def drop_cut_line(self) -> None:
        """Remove what a process that died left of its last line."""
        self._file.seek(0)
        whole = self._file.read().rfind(b"\n") + 1
        self._file.truncate(whole)

    def append(self, line: bytes) -> None:
        """Append one line, with its end. Raises JournalError where the disk does not take it."""
        try:
            complete = self._file.write(line) == len(line)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise JournalError(f"cannot be written: {error.strerror}", file=self.path) from None
            complete = False
        if not complete:
            raise JournalError("the disk is full", file=self.path)

    def close(self) -> None:
        """Close the file and give up its lock."""
        self._file.close()


def _lock(file: IO[bytes], path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        remedy = "use one journal per run and rank"
        raise JournalError("another run is writing this journal", file=path, remedy=remedy) from None
