"""Which dumps are the ranks of one step."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from msprobe_hooks.dump.reader import Dump

_RANK = re.compile(r"rank(\d*)")


@dataclass(frozen=True, slots=True)
class Step:
    """The dumps of one step by rank, in the order of the ranks. ``folder`` is what they have in common."""

    folder: Path
    ranks: dict[int, Dump]


def find_steps(dumps: Iterable[Dump]) -> list[Step]:
    """Group dumps in folders named ``rank<N>`` by the folder around them.

    A rank without a number is rank 0. A dump in any other folder, such as ``proc<pid>``, does not tell its rank: it is
    a step of its own, with rank 0, as is a second dump for a rank.
    """
    steps: dict[Path, dict[int, Dump]] = {}
    for dump in dumps:
        folder = dump.path.parent
        named = _RANK.fullmatch(folder.name)
        rank = int(named[1] or 0) if named else 0
        together = folder.parent if named and rank not in steps.get(folder.parent, {}) else folder
        steps.setdefault(together, {})[rank] = dump
    return [Step(folder, dict(sorted(ranks.items()))) for folder, ranks in steps.items()]
