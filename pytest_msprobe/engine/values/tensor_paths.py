"""The file of a recorded tensor, without which what needs it is skipped."""

from __future__ import annotations

from pathlib import Path

from msprobe_hooks.dump.npy import find_file
from pytest_msprobe.results.outcomes import Skip, SkipReason


def tensor_path(folder: Path, name: str) -> Path:
    """Return the path of a tensor's file. Raises Skip where it is missing, DumpError where its name is none."""
    path = find_file(folder, name)
    if path is None:
        raise Skip(SkipReason.MISSING_TENSOR_FILE, str(folder / name))
    return path
