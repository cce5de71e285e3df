"""Names and digests of what is saved, and one process at a time in the folder where it is."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
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
