"""The options that keep failing cases."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_UNITS = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT]iB|B|)")


@dataclass(frozen=True, slots=True)
class SaveOptions:
    """Where failing cases go, and how many bytes one of them and the whole folder may take."""

    folder: Path
    case_limit: int
    folder_limit: int


_DEFAULT_LIMIT = "1GiB,10GiB"


def add_options(group: pytest.OptionGroup) -> None:
    """Add the options to the group."""
    group.addoption(
        "--msprobe-save-failures",
        metavar="DIR",
        help="save what a failing record computed with, and what came out, for pytest-msprobe replay",
    )
    group.addoption(
        "--msprobe-save-limit",
        metavar="CASE[,FOLDER]",
        help=f"the most that one saved case and the whole folder may take (default: {_DEFAULT_LIMIT})",
    )


def read_save_options(config: pytest.Config) -> SaveOptions | None:
    """Return what the user asked for, None where nothing is to be saved. Raises pytest.UsageError."""
    text: Any = config.getoption("msprobe_save_failures")
    limits: Any = config.getoption("msprobe_save_limit")
    if not text:
        if limits:
            raise pytest.UsageError("--msprobe-save-limit bounds what is saved: give --msprobe-save-failures DIR")
        return None
    folder = Path(config.invocation_params.dir / text)
    if folder.exists() and not folder.is_dir():
        raise pytest.UsageError(f"--msprobe-save-failures {text!r}: is a file; wants a folder")
    if importlib.util.find_spec("safetensors") is None:
        raise pytest.UsageError(
            "--msprobe-save-failures needs safetensors: install it with pip install 'pytest-msprobe[cases]'"
        )
    case_limit, folder_limit = _limits(limits or _DEFAULT_LIMIT)
    return SaveOptions(folder, case_limit, folder_limit)


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
