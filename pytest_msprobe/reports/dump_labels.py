"""Names that distinguish a run's dumps: ``step0/rank3`` rather than a path."""

from __future__ import annotations

import os
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path

import pytest

from msprobe_hooks.dump.paths.converted import is_converted_file, tree_of
from msprobe_hooks.dump.paths.recording import home_of
from msprobe_hooks.dump.paths.stages import folder_of_run
from msprobe_hooks.dump.paths.static_graph import is_iteration_file, net_folder

#: The labels of this run's dumps.
labels_key = pytest.StashKey[dict[Path, str]]()


def label(dumps: Collection[Path]) -> dict[Path, str]:
    """Return a label for each dump, made of what its path alone has; the only one of a run has an empty label."""
    if len(dumps) < 2:
        return dict.fromkeys(dumps, "")
    shared = folder_of_run(Path(os.path.commonpath([_folder(path) for path in dumps])))
    within = {path: home_of(path).relative_to(shared) for path in dumps}
    one_a_folder = {path.name for path in dumps} == {"dump.json"} and Path("dump.json") not in within.values()
    return {path: str(name.parent if one_a_folder else name) for path, name in within.items()}


def _folder(dump: Path) -> Path:
    """Return the folder that a dump is in: of an iteration of a static graph, that of the process."""
    if is_converted_file(dump):
        return tree_of(dump).parent
    return net_folder(dump).parent if is_iteration_file(dump) else dump.parent


def labelled(record: str, dump: Path, labels: dict[Path, str]) -> str:
    """Return a record's name with its dump's label, or the name of the file where a label is empty."""
    return f"{record} ({labels[dump] or _short_name(dump)})"


@lru_cache(maxsize=64)
def _short_name(dump: Path) -> str:
    # Asked for each item.
    return str(home_of(dump).relative_to(_folder(dump)))
