"""Sizes in bytes, as the user reads and writes them."""

from __future__ import annotations

import re

_UNITS = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT]iB|B|)")


def format_size(size: int) -> str:
    """Return a number of bytes in the largest unit of which there is one."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size >= _UNITS[unit]:
            return f"{size / _UNITS[unit]:.1f} {unit}"
    return f"{size} B"


def parse_size(text: str) -> int | None:
    """Return the bytes that a text such as ``500MiB`` says, None where it is not a size."""
    match = _SIZE.fullmatch(text)
    return int(float(match[1]) * _UNITS[match[2]]) if match else None
