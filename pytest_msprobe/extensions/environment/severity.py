"""What a difference weighs, and which names are one: ``levels.yaml``."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from msprobe_standards.decoding import decode_yaml

Level = Literal["error", "warning"]


class Variable(msgspec.Struct, frozen=True):
    """An environment variable under the names that it has on each kind of card."""

    names: tuple[str, ...]
    default: str
    level: Level


class Levels(msgspec.Struct, frozen=True):
    """The table; ``aliases`` are rows of names of one hyperparameter, ``left_out`` names that differ between starts."""

    aliases: tuple[tuple[str, ...], ...]
    left_out: frozenset[str]
    variables: tuple[Variable, ...]
    packages: frozenset[str]
    machine: frozenset[str]

    def canonical(self, name: str) -> str:
        """Return what a hyperparameter is called whatever a framework calls it."""
        return next((row[0] for row in self.aliases if name in row), name)


@cache
def levels() -> Levels:
    """Return the table."""
    plain: Any = decode_yaml(Path(__file__).with_name("levels.yaml").read_bytes())
    return msgspec.convert(plain, Levels)
