"""Location of a recorded tensor's file: below the folder of its dump, whatever its name says."""

from __future__ import annotations

import os
import stat
from functools import lru_cache
from pathlib import Path

from msprobe_hooks.errors import DumpError


def find_file(folder: Path, name: str) -> Path | None:
    """Return the path of a tensor's file, None where it is missing. Raises DumpError where its name is none."""
    # Asked for each of thousands of files: of strings, because to take paths apart costs more than to ask the system.
    text = os.path.join(folder, name)  # noqa: PTH118
    try:
        mode = _mode_of(text)
        # A folder has many files, of which few are links.
        place = _resolved(text if stat.S_ISLNK(mode) else os.path.dirname(text))  # noqa: PTH120
        home = _resolved(str(folder))
        inside = place == home or place.startswith(os.path.join(home, ""))  # noqa: PTH118
        exists = inside and stat.S_ISREG(Path(text).stat().st_mode if stat.S_ISLNK(mode) else mode)
    except (OSError, RuntimeError, ValueError):
        # A name with NUL, one that is too long, a loop of links.
        raise DumpError(f"{name[:100]!r}: no tensor file can have this name") from None
    if not inside:
        raise DumpError(f"{name!r}: a tensor file must lie in {folder}; this name leads out of it")
    if not text.endswith((".pt", ".npy", ".safetensors")):
        raise DumpError(f"{name!r}: tensor files end in .pt or .npy, or are named as 0.safetensors::NAME")
    return Path(text) if exists else None


def _mode_of(path: str) -> int:
    """Return what kind of file a path is, a link itself; 0 where there is none."""
    try:
        return os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


@lru_cache(maxsize=64)
def _resolved(path: str) -> str:
    return os.path.realpath(path)
