"""What tools answered for a device, as a journal keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Judged(NamedTuple):
    """The answers of all tools to the cases of one device.

    Attributes:
        kind: The row of the table in which it counts.
        name: What it is called.
        is_faulty: Whether it is wrong.
        calls: The calls whose results differ from the CPU's, by dump and name.
        draws: Of each of them, whether it draws random numbers.
        answers: By tool, its answer to each of them.
    """

    kind: str
    name: str
    is_faulty: bool
    calls: list[str]
    draws: list[bool]
    answers: dict[str, list[str]]

    def accused(self, tool: str, words: Sequence[str]) -> list[bool]:
        """Return of each call whether a tool calls it wrong, in one of these words."""
        return [answer in words for answer in self.answers[tool]]
