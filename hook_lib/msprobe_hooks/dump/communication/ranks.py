"""Which dumps are the ranks of one step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from msprobe_hooks.dump.paths.recording import rank_of
from msprobe_hooks.dump.reader import Dump


@dataclass(frozen=True, slots=True)
class Step:
    """The dumps of one step by rank, in the order of the ranks. ``folder`` is what they have in common."""

    folder: Path
    ranks: dict[int, Dump]


def find_steps(dumps: Iterable[Dump]) -> list[Step]:
    """Group dumps in folders named ``rank<N>`` by the folder around them.

    A rank without a number is rank 0. A dump in any other folder, such as ``proc<pid>``, does not show its rank: it is
    a step of its own, with rank 0, as is a second dump for a rank.
    """
    steps: dict[Path, dict[int, Dump]] = {}
    for dump in dumps:
        folder = dump.path.parent
        rank = rank_of(folder)
        is_first = rank is not None and rank not in steps.get(folder.parent, {})
        steps.setdefault(folder.parent if is_first else folder, {})[rank or 0] = dump
    return [Step(folder, dict(sorted(ranks.items()))) for folder, ranks in steps.items()]
