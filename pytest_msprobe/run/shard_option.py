"""``--msprobe-shard I/N``: one of N parts of a run, each with as much recorded work as the others."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from pytest_msprobe.errors import OptionError
from pytest_msprobe.run.mode import Mode

SHARD = "--msprobe-shard"


class Shard(NamedTuple):
    """One part of so many; ``number`` counts from 1."""

    number: int
    total: int

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"


def read_shard(config: pytest.Config, name: str, text: str) -> Shard:
    """Return the shard that is asked for. Raises OptionError."""
    parts = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    shard = Shard(int(parts[1]), int(parts[2])) if parts else None
    if shard is None or not 1 <= shard.number <= shard.total:
        raise OptionError(f"{name} {text!r}: expected I/N with I from 1 to N, such as 3/8")
    return shard


def divides_dumps(mode: Mode) -> bool:
    """Return whether a mode reads only the dumps of its shard: it then has a true attribute ``divides_dumps``."""
    return bool(getattr(mode, "divides_dumps", False))
