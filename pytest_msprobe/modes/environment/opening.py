"""Both starts of a run, brought together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_msprobe.errors import OptionError
from pytest_msprobe.modes.environment.facts import Facts
from pytest_msprobe.modes.environment.pairs import Pair, pairs_of
from pytest_msprobe.modes.environment.starts import read_all


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
    """Pair the facts of each rank with those of the same rank of the golden start.

    Raises OptionError where that has no such rank or tells of nothing in common, StartError for unusable files.
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
                    f"{golden}: has ranks {have}, and no rank {rank} as {path}", remedy="name one that has"
                )
            files.setdefault(path, {})[rank] = pairs_of(target, other)
            notes += [f"rank {rank}: {problem}" for problem in target.problems]
            notes += [f"golden rank {rank}: {problem}" for problem in other.problems]
            notes += list(_one_sided(rank, target, other))
    seen = {rank for ranks in targets.values() for rank in ranks}
    notes += [f"golden rank {rank}: the target has no such rank" for rank in goldens if rank not in seen]
    if not any(pairs for ranks in files.values() for pairs in ranks.values()):
        raise OptionError(f"{golden}: tells of nothing that the start under test tells of", remedy="write both alike")
    return Opened(files, notes)


def _one_sided(rank: int, target: Facts, golden: Facts) -> Iterator[str]:
    for side, one, other in (("target", target, golden), ("golden start", golden, target)):
        only = sorted(one.known - other.known)
        if only:
            yield f"rank {rank}: only the {side} tells of {', '.join(only)}: not compared"
