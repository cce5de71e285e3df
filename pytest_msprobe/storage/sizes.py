"""Sizes in bytes, as the user reads and writes them, and the limits on what is kept."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_UNITS = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT]iB|B|)")
_DEFAULT_LIMIT = "1GiB,10GiB"


@dataclass(frozen=True, slots=True)
class SaveOptions:
    """Where something is saved, and how many bytes one piece of it (a case, a record) and the whole folder may take."""

    folder: Path
    case_limit: int
    folder_limit: int


def add_limit_option(group: pytest.OptionGroup) -> None:
    """Add the option that bounds whatever is saved."""
    group.addoption(
        "--msprobe-save-limit",
        metavar="ONE[,FOLDER]",
        help="the most that one saved case, or one record's tensors of a baseline, and the whole folder may take "
        f"(default: {_DEFAULT_LIMIT})",
    )


def save_options(config: pytest.Config, folder: Path, option: str) -> SaveOptions:
    """Return how an option's files are saved.

    Raises pytest.UsageError where the limits are no sizes or safetensors is not installed.
    """
    if importlib.util.find_spec("safetensors") is None:
        raise pytest.UsageError(f"{option} needs safetensors: install it with pip install 'pytest-msprobe[cases]'")
    text: Any = config.getoption("msprobe_save_limit")
    one_limit, folder_limit = _limits(text or _DEFAULT_LIMIT)
    return SaveOptions(folder, one_limit, folder_limit)


def format_size(size: int) -> str:
    """Return a number of bytes in the largest unit of which there is one."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size >= _UNITS[unit]:
            return f"{size / _UNITS[unit]:.1f} {unit}"
    return f"{size} B"


def _limits(text: str) -> tuple[int, int]:
    sizes = [_bytes(part.strip()) for part in text.split(",")]
    if not 1 <= len(sizes) <= 2 or None in sizes:
        raise pytest.UsageError(
            f"--msprobe-save-limit {text!r}: wants a size, or two with a comma, such as 500MiB or {_DEFAULT_LIMIT}"
        )
    first, last = sizes[0] or 0, sizes[-1] or 0
    return first, last if len(sizes) == 2 else max(first, _limits(_DEFAULT_LIMIT)[1])


def _bytes(text: str) -> int | None:
    match = _SIZE.fullmatch(text)
    return int(float(match[1]) * _UNITS[match[2]]) if match else None
