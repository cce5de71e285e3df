"""Dumps of a shard of a comparison: whole ones, by step and rank, so that no job reads those of another."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from pytest_msprobe.errors import OptionError
from pytest_msprobe.run.shard_option import Shard


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
