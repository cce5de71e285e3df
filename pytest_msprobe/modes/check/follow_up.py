"""Protocol of a step after a verdict, which may add to a record's result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_msprobe.results.outcomes import SkipReason

if TYPE_CHECKING:
    from msprobe_hooks.dump.names import Direction
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.engine.replay.check import Replay
    from pytest_msprobe.results.result import DirectionResult

# Of these calls nothing could be known from golden, but they run.
_RUNS_UNJUDGED = (SkipReason.NO_GOLDEN, SkipReason.NO_BASELINE, SkipReason.UNSPECIFIED)


@dataclass(frozen=True, slots=True)
class Judged:
    """A record that was judged just now. ``started`` is when that began, of `time.monotonic`."""

    dump: Dump
    replay: Replay
    direction: Direction
    result: DirectionResult
    started: float


FollowUp = Callable[[Judged], "DirectionResult"]


def can_run_again(result: DirectionResult) -> bool:
    """Return whether a judged call has a result on the device, or may have one, to be compared with another."""
    return result.breakdown is None and (result.skip is None or result.skip in _RUNS_UNJUDGED)
