"""What a step after a verdict is given: a follow-up may add to what came of the record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msprobe_hooks.dump.names import Direction
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.engine.replay.check import Replay
    from pytest_msprobe.results.result import DirectionResult


@dataclass(frozen=True, slots=True)
class Judged:
    """A record that was judged just now. ``started`` is when that began, of `time.monotonic`."""

    dump: Dump
    replay: Replay
    direction: Direction
    result: DirectionResult
    started: float


FollowUp = Callable[[Judged], "DirectionResult"]
