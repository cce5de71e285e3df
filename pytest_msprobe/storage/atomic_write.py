"""Files that are whole or not there."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path


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
