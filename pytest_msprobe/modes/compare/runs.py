"""Runs by the dumps that they go by: one each, or that of the first rank where a layout merges several; and shards."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from msprobe_hooks.dump.reader import Dump, open_dump
from msprobe_hooks.dump.recording_paths import StepRank, find_dumps, step_rank
from pytest_msprobe.errors import OptionError
from pytest_msprobe.run.shard_option import Shard


class Layout(Protocol):
    """Layout of a model over the ranks of a run, so that they are compared as one run."""

    def runs_of(self, dumps: Sequence[Path]) -> list[Path]:
        """Return the dump of the first rank of each run. Raises DumpError where ranks do not fit."""

    def open_run(self, path: Path) -> Dump:
        """Read a run by the dump of its first rank. Raises DumpError."""

    def open_alone(self, path: Path) -> Dump:
        """Read a run that is compared with none. Raises DumpError."""

    def place_of(self, path: Path) -> StepRank:
        """Return step and data parallel rank of a run."""

    def ranks_of(self, path: Path) -> Sequence[Path]:
        """Return all dumps that a run is read from."""


@dataclass(frozen=True, slots=True, order=True)
class RunNote:
    """A remark on a value of a run; the summary has one line for all of the same ``words``, by their ``place``."""

    place: int
    words: str
    value: str


@dataclass(frozen=True, slots=True)
class Runs:
    """Two runs to be compared, and remarks on their values."""

    target: Dump
    golden: Dump
    notes: Sequence[RunNote] = ()


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


def dumps_of_shard(dumps: Sequence[Path], shard: Shard, folder: Path) -> list[Path]:
    """Return every n-th dump: ranks of one pipeline stage have equal work and follow each other.

    Raises OptionError where there are fewer dumps than shards.
    """
    if len(dumps) < shard.total:
        raise OptionError(
            f"--msprobe-shard {shard}: a comparison is divided by steps and ranks, and {folder} has {len(dumps)}",
            remedy=f"use at most {len(dumps)} shards" if len(dumps) > 1 else "remove --msprobe-shard",
        )
    return list(dumps[shard.number - 1 :: shard.total])


def digest_of_runs(dumps: Iterable[Path]) -> str:
    """Return what differs where other dumps are compared: a digest of their paths and sizes."""
    lines = (f"{path} {path.stat().st_size}\n" for path in dumps)
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()[:16]
