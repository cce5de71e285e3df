"""The starts that a path holds: a folder of ranks, one rank's file, or what msprobe packed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msprobe_hooks.errors import StartError
from msprobe_hooks.instruments.environment.start_file import rank_files, read_started
from pytest_msprobe.modes.environment.facts import Facts, facts_of
from pytest_msprobe.modes.environment.packs import read_pack


def start_files(folder: Path) -> list[Path]:
    """Return the files of a folder, by rank. Raises StartError where there are none."""
    files = rank_files(folder)
    if not files:
        raise StartError(f"{folder}: holds no rank<n>.json; name the folder that msprobe_hooks.write_environment wrote")
    return files


def read_starts(path: Path) -> dict[int, Facts]:
    """Return the facts of each rank that a file tells of. Raises StartError."""
    if path.suffix == ".zip":
        return read_pack(path)
    facts = facts_of(read_started(path))
    return {facts.rank: facts}


def files_of(path: Path) -> list[Path]:
    """Return the files that a start consists of. Raises StartError where a folder has none."""
    return start_files(path) if path.is_dir() else [path]


def read_all(path: Path) -> Mapping[int, Facts]:
    """Return the facts of each rank that a file or a folder tells of. Raises StartError."""
    found: dict[int, Facts] = {}
    for file in files_of(path):
        found |= read_starts(file)
    return found
