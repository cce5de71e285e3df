"""Runs by the dumps that they go by: one dump each, or that of the first rank where a layout merges several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe_hooks.dump.opening import open_dump
from msprobe_hooks.dump.paths.recording import StepRank, find_dumps, step_rank

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.modes.compare.registry import Layout


def runs_of(path: Path, layout: Layout | None) -> list[Path]:
    """Return the dumps of a file or folder that runs go by; where ranks are merged, that of the first of each run.

    Raises DumpError where there are none, or ranks do not fit the layout.
    """
    if path.is_file():
        return [path]
    return find_dumps(path) if layout is None else layout.runs_of(find_dumps(path))


def open_run(path: Path, layout: Layout | None) -> Dump:
    """Read a run by the dump that it goes by. Raises DumpError where it cannot be used."""
    return open_dump(path) if layout is None else layout.open_run(path)


def place_of_run(path: Path, layout: Layout | None) -> StepRank:
    """Return step and rank of a run, the data parallel rank where it is merged of several."""
    return step_rank(path) if layout is None else layout.place_of(path)


def ranks_of(path: Path, layout: Layout | None) -> Sequence[Path]:
    """Return all dumps that a run is read from."""
    return [path] if layout is None else layout.ranks_of(path)
