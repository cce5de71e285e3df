"""Facts about a machine, as data."""

from __future__ import annotations

from typing import Literal

import msgspec

#: ``absent`` is what need not be there; ``broken`` is there and cannot be used, or is asked for and missing.
State = Literal["ok", "absent", "broken"]


class Fact(msgspec.Struct, frozen=True):
    """One line: what it is of, what was found, and whether that is right."""

    name: str
    text: str
    state: State = "ok"


class Section(msgspec.Struct, frozen=True):
    """Facts of one kind under their title."""

    title: str
    facts: tuple[Fact, ...]
