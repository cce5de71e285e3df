"""The protocol of a tool, and its answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from benchmarks.tools.cases import Case

#: What a tool says of a case; "-" where it does not judge it.
Answer = Literal["right", "warning", "wrong", "-"]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that judges what a device computed.

    Attributes:
        name: Its row of the table.
        given: What of a case it looks at.
        judge: Returns its answer to a case.
    """

    name: str
    given: str
    judge: Callable[[Case], Answer]
