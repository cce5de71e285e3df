"""What tells a run's dumps apart in words: ``step0/rank3`` rather than a path."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import pytest

#: The labels of this run's dumps.
labels_key = pytest.StashKey[dict[Path, str]]()


def label(dumps: Collection[Path]) -> dict[Path, str]:
    """Return a label for each dump, made of what its path alone has; the only one of a run has an empty label."""
    if len(dumps) < 2:
        return dict.fromkeys(dumps, "")
    shared = os.path.commonpath([path.parent for path in dumps])
    within = {path: path.relative_to(shared) for path in dumps}
    one_a_folder = {path.name for path in dumps} == {"dump.json"} and Path("dump.json") not in within.values()
    return {path: str(name.parent if one_a_folder else name) for path, name in within.items()}


def labelled(record: str, dump: Path, labels: dict[Path, str]) -> str:
    """Return a record's name with its dump's label, or the name of the file where a label tells nothing."""
    return f"{record} ({labels[dump] or dump.name})"
