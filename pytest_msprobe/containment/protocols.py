"""Protocols between containment and a run: items, and what the process that runs them holds for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_msprobe.results.result import DirectionResult, Start


class Contained(Protocol):
    """An item that may hang, crash or take all memory."""

    name: str
    #: The file that it is of.
    path: Path

    @property
    def nodeid(self) -> str:
        """The item's id, by which a child finds it."""

    def judge(self) -> DirectionResult:
        """Judge. Raises DumpError where a file is unusable."""

    def records(self) -> list[bytes]:
        """Return the undecoded records of the item's call; the time that it may take grows with their elements."""


class Host(Protocol):
    """State that a process holds for its items: a device that is started once, may break, and keeps memory."""

    def preload(self) -> None:
        """Load what every child needs, without starting anything that a fork does not survive."""

    def begin(self) -> Start | None:
        """Start what items run on and say what it is; None where they run on nothing. Raises a UserError."""

    def adopt_start(self, start: Start) -> None:
        """Take what a child of this process has started for one's own."""

    def release_memory(self) -> None:
        """Release the memory that what has started keeps for later."""

    def probe(self) -> str | None:
        """Return why what has started no longer works; None where it does."""


#: What judges an item where that does not happen in this process.
judge_elsewhere_key = pytest.StashKey[Callable[[Contained], "DirectionResult"]]()
