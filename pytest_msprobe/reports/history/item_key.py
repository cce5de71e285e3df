"""What an item has in common with itself in another run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from msprobe_hooks.dump.paths.recording import step_rank


class ItemKey(NamedTuple):
    """A record and, among the dumps of its run, the place of its own: the same in two runs for the same item."""

    place: str
    record: str


NO_KEY: Final = ItemKey("", "")


def item_key(record: str, dump: Path | None, labels: Mapping[Path, str]) -> ItemKey:
    """Return the key of a record; the dump is None for a check of a test, whose record has the test's name."""
    return ItemKey("" if dump is None else labels.get(dump) or _step_and_rank(dump), record)


def _step_and_rank(dump: Path) -> str:
    """Return what the label of a dump would be if its run had others: ``step0/rank3``."""
    step, rank = step_rank(dump)
    names = [] if step is None else [f"step{step}"]
    names += [f"rank{'' if rank is None else rank}"] if names or rank is not None else []
    return "/".join(names)
