"""Several journals: the shards of one run are put together, other runs stay apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

import msgspec

from pytest_msprobe.journal import DIVIDED_DUMPS, Header, Journal


class Part(NamedTuple):
    """A journal and where it was read from."""

    path: Path
    journal: Journal

    @property
    def began(self) -> datetime:
        """Return when its run began; of a journal of a version that wrote no date, when it was last added to."""
        try:
            began = datetime.fromisoformat(self.journal.header.began)
        except ValueError:
            return datetime.fromtimestamp(self.path.stat().st_mtime, timezone.utc)
        return began if began.tzinfo else began.replace(tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class WholeRun:
    """One run, of one journal or of those of its shards.

    ``missing`` are the shards that no journal is of, ``doubled`` those that several are of; of an item that several of
    these finished the latest journal's counts. ``paths`` are those of its journals, by date.
    """

    name: str
    began: datetime
    journal: Journal
    missing: tuple[str, ...]
    doubled: Mapping[str, tuple[Path, ...]]
    paths: tuple[Path, ...] = ()


def whole_runs(parts: Sequence[Part]) -> list[WholeRun]:
    """Return the runs that journals are of, by date.

    Shards of the same dumps, judged by the same settings, are one run. Where all shards are there, each as often as the
    others, they are as many runs, by date.
    """
    by_run: defaultdict[tuple[object, ...], list[Part]] = defaultdict(list)
    for place, part in enumerate(parts):
        header = part.journal.header
        by_run[_identity(header) if header.shard else (place,)].append(part)
    runs = [run for shards in by_run.values() for run in _runs(sorted(shards, key=lambda part: part.began))]
    return sorted(runs, key=lambda run: run.began)


def _identity(header: Header) -> tuple[object, ...]:
    """Return what the shards of a run share: the dumps, but where each shard has its own."""
    dumps = () if DIVIDED_DUMPS in header.settings else tuple(sorted(header.dumps.values()))
    return dumps, tuple(sorted(header.settings.items())), header.shard.partition("/")[2]


def _runs(parts: Sequence[Part]) -> Iterable[WholeRun]:
    """Return the runs of shards that may belong together, which are given by date."""
    by_shard: defaultdict[str, list[Part]] = defaultdict(list)
    for part in parts:
        by_shard[part.journal.header.shard].append(part)
    names = _all_shards(parts[0].journal.header.shard)
    rounds = {len(of_shard) for of_shard in by_shard.values()}
    if by_shard.keys() >= set(names) and len(rounds) == 1:
        return [_whole([by_shard[name][place] for name in names], names) for place in range(rounds.pop())]
    return [_whole(parts, names)]


def _all_shards(shard: str) -> list[str]:
    """Return the names of all shards of the run that one is of; a whole run is one, without a name."""
    total = shard.partition("/")[2]
    return [f"{number}/{total}" for number in range(1, int(total) + 1)] if total else [shard]


def _whole(parts: Sequence[Part], shards: Iterable[str]) -> WholeRun:
    by_date = sorted(parts, key=lambda part: part.began)
    paths: defaultdict[str, tuple[Path, ...]] = defaultdict(tuple)
    for part in by_date:
        paths[part.journal.header.shard] += (part.path,)
    first, last = by_date[0], by_date[-1]
    dumps = {name: content for part in by_date for name, content in part.journal.header.dumps.items()}
    whole = Journal(
        msgspec.structs.replace(last.journal.header, shard="", dumps=dumps),
        {entry.id: entry for part in by_date for entry in part.journal.entries.values()},
        [start for part in by_date for start in part.journal.starts],
        last.journal.left_out,
    )
    return WholeRun(
        str(first.path) if len(parts) == 1 else f"{first.path} and {len(parts) - 1} more",
        first.began,
        whole,
        tuple(shard for shard in shards if shard not in paths),
        {shard: files for shard, files in paths.items() if len(files) > 1},
        tuple(part.path for part in by_date),
    )
