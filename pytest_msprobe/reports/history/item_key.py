"""Key of an item, the same in every run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from msprobe_hooks.dump.recording_paths import step_rank


class ItemKey(NamedTuple):
    """A record and, among the dumps of its run, the place of its own: the same in two runs for the same item.

    The place is empty for a check of a test, whose record has the test's name, and for the only dump of a run.
    """

    place: str
    record: str


NO_KEY: Final = ItemKey("", "")


def dump_places(labels: Mapping[Path, str]) -> dict[Path, str]:
    """Return the place of each dump of a run, given their labels among each other.

    It is the step and rank, which do not depend on which other dumps a run has; where several have the same, or none,
    it is the label.
    """
    numbers = {dump: _step_and_rank(dump) for dump in labels}
    count = Counter(numbers.values())
    return {dump: number if number and count[number] == 1 else labels[dump] for dump, number in numbers.items()}


def _step_and_rank(dump: Path) -> str:
    return "/".join(
        f"{name}{number}" for name, number in zip(("step", "rank"), step_rank(dump), strict=True) if number is not None
    )
