"""Sizes in bytes, as the user reads and writes them, and the limits on what is kept."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_UNITS = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT]iB|B|)")
#: What is kept where the user names no limits: one piece, the whole folder.
DEFAULT_LIMITS = "1GiB,10GiB"


@dataclass(frozen=True, slots=True)
class SaveOptions:
    """Where something is saved, and how many bytes one piece of it (a case, a record) and the whole folder may take."""

    folder: Path
    case_limit: int
    folder_limit: int


def parse_limits(text: str) -> tuple[int, int]:
    """Read ``500MiB``, the most for one piece, or ``500MiB,20GiB``, that and the most for the whole folder.

    Raises ValueError where these are no sizes.
    """
    sizes = [parse_size(part.strip()) for part in text.split(",")]
    if not 1 <= len(sizes) <= 2 or None in sizes:
        raise ValueError(f"{text!r}: expected a size, or two with a comma, such as 500MiB or {DEFAULT_LIMITS}")
    first, last = sizes[0] or 0, sizes[-1] or 0
    return first, last if len(sizes) == 2 else max(first, parse_limits(DEFAULT_LIMITS)[1])


def format_size(size: int) -> str:
    """Return a number of bytes in the largest unit of which there is one."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size >= _UNITS[unit]:
            return f"{size / _UNITS[unit]:.1f} {unit}"
    return f"{size} B"


def parse_size(text: str) -> int | None:
    """Return the bytes that a text such as ``500MiB`` says, None where it is no size."""
    match = _SIZE.fullmatch(text)
    return int(float(match[1]) * _UNITS[match[2]]) if match else None
