"""A rank's folder as pytest sees it: its first file stands for it, since ids are of files."""

from __future__ import annotations

import hashlib
from pathlib import Path

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.instruments.series.layout import FileName, file_name
from msprobe_hooks.instruments.series.reading import Run, open_run

_SUFFIXES = (".csv", ".parquet")


def first_file(folder: Path) -> Path:
    """Return the file of series that comes first by task and steps."""
    return min(_named(folder))[1]


def open_run_of(path: Path) -> Run:
    """Open the folder that a file of series is in. Raises MonitorError for any other file."""
    if not path.exists():
        raise MonitorError(f"{path}: no such folder; name the folder that a watched run wrote")
    if path.suffix not in _SUFFIXES or file_name(path) is None:
        raise MonitorError(f"{path}: no file of series, such as actv_0-9.csv; name the folder that a watched run wrote")
    return open_run(path.parent)


def listing(folder: Path) -> str:
    """Return a short digest of a folder's files of series, by name and size."""
    names = (f"{path.name} {path.stat().st_size}" for _, path in sorted(_named(folder)))
    return hashlib.blake2b("\n".join(names).encode(), digest_size=16).hexdigest()


def _named(folder: Path) -> list[tuple[FileName, Path]]:
    paths = (path for path in folder.iterdir() if path.suffix in _SUFFIXES)
    return [(name, path) for path in paths if (name := file_name(path))]
