"""Both starts of a run, brought together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from msprobe_hooks.errors import StartError
from msprobe_hooks.extensions.environment.start_file import rank_files, read_started
from pytest_msprobe.errors import OptionError
from pytest_msprobe.extensions.environment.fact_pairs import Pair, pairs_of
from pytest_msprobe.extensions.environment.msprobe_pack import Facts, facts_of, read_pack


def start_files(folder: Path) -> list[Path]:
    """Return the files of a folder, by rank. Raises StartError where there are none."""
    files = rank_files(folder)
    if not files:
        raise StartError(f"{folder}: no rank<n>.json; name the folder that msprobe_hooks.write_environment wrote")
    return files


def read_starts(path: Path) -> dict[int, Facts]:
    """Return the facts of each rank in a file. Raises StartError."""
    if path.suffix == ".zip":
        return read_pack(path)
    facts = facts_of(read_started(path))
    return {facts.rank: facts}


def files_of(path: Path) -> list[Path]:
    """Return the files that a start consists of. Raises StartError where a folder has none."""
    return start_files(path) if path.is_dir() else [path]


def read_all(path: Path) -> Mapping[int, Facts]:
    """Return the facts of each rank in a file or a folder. Raises StartError."""
    facts: dict[int, Facts] = {}
    for file in files_of(path):
        facts |= read_starts(file)
    return facts


@dataclass(frozen=True, slots=True)
class Opened:
    """The pairs of each file by rank, and what is odd about either side, in sentences."""

    files: Mapping[Path, Mapping[int, list[Pair]]]
    notes: list[str]

    def named(self, path: Path) -> Iterator[tuple[str, Pair]]:
        """Yield the pairs of a file with what their items' names begin with: the rank where there are several."""
        ranks = self.files[path]
        for rank, pairs in ranks.items():
            prefix = f"rank{rank}/" if len(ranks) > 1 else ""
            yield from ((prefix, pair) for pair in pairs)

    def ranked(self) -> list[tuple[int, Pair]]:
        """Return all pairs with their ranks."""
        return [(rank, pair) for ranks in self.files.values() for rank, pairs in ranks.items() for pair in pairs]


def open_starts(targets: Mapping[Path, Mapping[int, Facts]], golden: Path) -> Opened:
    """Pair the facts of each rank with those of the same rank of the golden environment.

    Raises OptionError where that has no such rank or nothing in common, StartError for unusable files.
    """
    goldens = read_all(golden)
    files: dict[Path, dict[int, list[Pair]]] = {}
    notes: list[str] = []
    for path, ranks in targets.items():
        for rank, target in ranks.items():
            other = goldens.get(rank)
            if other is None:
                have = ", ".join(map(str, goldens))
                raise OptionError(
                    f"{golden}: no rank {rank}, which {path} has; it has ranks {have}", remedy="name one with this rank"
                )
            files.setdefault(path, {})[rank] = pairs_of(target, other)
            notes += [f"rank {rank}: {problem}" for problem in target.problems]
            notes += [f"golden rank {rank}: {problem}" for problem in other.problems]
            notes += list(_one_sided(rank, target, other))
    target_ranks = {rank for ranks in targets.values() for rank in ranks}
    notes += [f"golden rank {rank}: the target has no such rank" for rank in goldens if rank not in target_ranks]
    if not any(pairs for ranks in files.values() for pairs in ranks.values()):
        raise OptionError(f"{golden}: no fact in common with the target", remedy="write both in the same way")
    return Opened(files, notes)


def _one_sided(rank: int, target: Facts, golden: Facts) -> Iterator[str]:
    for side, one, other in (("target", target, golden), ("golden environment", golden, target)):
        only = sorted(one.known - other.known)
        if only:
            yield f"rank {rank}: not compared, only the {side} has them: {', '.join(only)}"
