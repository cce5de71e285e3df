"""Steps after a verdict, which may add to a record's result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_msprobe.results.outcomes import Breakdown, SkipReason, describe_error
from pytest_msprobe.results.result import failed_without_result

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


def followed_up(judged: Judged, steps: list[FollowUp]) -> DirectionResult:
    """Return what came of a record after every step; where memory runs out it is left alone, to be tried again."""
    for step in steps:
        if judged.result.breakdown is Breakdown.OOM:
            break
        result = _followed(judged, step)
        if result is not judged.result:
            judged = replace(judged, result=result)
    return judged.result


def _followed(judged: Judged, step: FollowUp) -> DirectionResult:
    try:
        return step(judged)
    except Exception as error:
        from pytest_msprobe.engine.values.error_kinds import is_out_of_memory

        if not is_out_of_memory(error):
            raise
        return failed_without_result(judged.result.record, Breakdown.OOM, f"memory ran out: {describe_error(error)}")
