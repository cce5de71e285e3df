"""What an item tells of a communication that differs, for the summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from pytest_msprobe.results.result import told

#: Under this name a result tells it.
EXTRA: Final = "communication"


class Alarm(msgspec.Struct, frozen=True):
    """A communication that differs: where it stands among those of its step, in words what is wrong, on which ranks.

    ``last`` tells the one before it that agrees, ``states`` where the recordings of its ranks ended.
    """

    order: int
    step: str
    place: str
    words: list[str]
    ranks: list[int]
    last: str
    states: list[str]


def alarm_of(extras: Mapping[str, Any]) -> Alarm | None:
    """Return what a result tells; None where it tells nothing of communication."""
    return told(extras, EXTRA, Alarm)
