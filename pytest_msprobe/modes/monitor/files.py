"""A rank's folder as pytest sees it: its first file stands for it, since ids are of files."""

from __future__ import annotations

import hashlib
from operator import itemgetter
from pathlib import Path

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.instruments.series.reader import Run, open_run, series_file, series_files


def first_file(folder: Path) -> Path:
    """Return the file of series that comes first by task and steps."""
    return min((name, path) for path, name in series_files(folder))[1]


def open_run_of(path: Path) -> Run:
    """Open the folder that a file of series is in. Raises MonitorError for any other file."""
    if not path.exists():
        raise MonitorError(f"{path}: no such folder; name the folder that a watched run wrote")
    if series_file(path) is None:
        raise MonitorError(f"{path}: no file of series, such as actv_0-9.csv; name the folder that a watched run wrote")
    return open_run(path.parent)


def listing(folder: Path) -> str:
    """Return a short digest of a folder's files of series, by name and size."""
    names = (f"{path.name} {path.stat().st_size}" for path, _ in sorted(series_files(folder), key=itemgetter(1, 0)))
    return hashlib.blake2b("\n".join(names).encode(), digest_size=16).hexdigest()
