"""Files that are whole or not there, their names and digests, and one process at a time in a folder of them."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from msprobe_hooks.regular_files import read_regular

#: What begins so has not been saved yet, or never was.
TEMPORARY = ".saving-"
LOCK_NAME = ".lock"
_UNREADABLE = re.compile(r"[^A-Za-z0-9_.-]+")
_SLUG_LENGTH = 80  # with a digest and a suffix far below the 255 bytes that a file system allows


def slug(text: str) -> str:
    """Return the readable part of a name, safe whatever the text is; a digest added to it distinguishes equal ones."""
    return _UNREADABLE.sub("_", text).strip(".-_")[:_SLUG_LENGTH] or "case"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[IO[str]]:
    """Lock a folder for one process at a time; yields the lock's file, for their notes."""
    with (folder / LOCK_NAME).open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def fingerprint(path: Path) -> str:
    """Return a short digest of a file's content."""
    return hashlib.blake2b(read_regular(path), digest_size=16).hexdigest()


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield where to write a file: next to its path, whose place it takes once it is complete and not before.

    What is no plain file, as ``/dev/stdout``, is written to itself.
    """
    # A circle of links is left as it is, for the system to refuse.
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        yield target
        return
    part = target.with_name(f".{target.name}.{os.getpid()}.part")  # as `file_of_part` reads it
    try:
        yield part
        part.replace(target)
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def file_of_part(path: Path) -> Path:
    """Return the file whose place a path that `atomic_write` yields takes; of any other path itself."""
    part = re.fullmatch(r"\.(.+)\.\d+\.part", path.name)
    return path if part is None else path.with_name(part[1])
