"""Calls that run again after their verdict: repeated, or on parts of their batch."""

from __future__ import annotations

from collections.abc import Callable

from msprobe_hooks.dump.names import Direction
from pytest_msprobe.devices.device import hardware
from pytest_msprobe.engine.replay.calls.arguments import TargetError
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.determinism import (
    compares_nothing,
    nondeterminism_reason,
    parts_of,
    row_cut,
    target_results,
    unstable_outputs,
    variations,
)
from pytest_msprobe.engine.replay.ops.cuts import Cut
from pytest_msprobe.engine.replay.rerun_differences import PASSED_AGAIN
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.suppress_warnings import suppress_warnings
from pytest_msprobe.modes.check.follow_ups import Judged, can_run_again
from pytest_msprobe.modes.check.rerun_results import (
    BatchInvariance,
    Repeats,
    RerunVerdict,
    with_batch_invariance,
    with_repeats,
)
from pytest_msprobe.results.outcomes import Skip
from pytest_msprobe.results.result import DirectionResult

_NONDETERMINISTIC = RerunVerdict("determinism", "nondeterministic", "It is nondeterministic as well")


class Repeat:
    """Runs a call until it has run ``times`` times; what differs from itself fails, unless the policy knows of it."""

    def __init__(self, times: int) -> None:
        self._times = times

    def __call__(self, judged: Judged) -> DirectionResult:
        """Repeat a call that runs on the device."""
        return repeated(judged.replay, judged.direction, judged.result, self._times)


def repeated(replay: Replay, direction: Direction, result: DirectionResult, times: int) -> DirectionResult:
    """Return what came of a judged record once its call has run so many times on the device.

    A call that raises in one of them is wrong, too.
    """
    if not can_run_again(result):
        return result
    setup, api = replay.setup, replay.call.name.qualified_api
    left_out = nondeterminism_reason(replay.trial, setup.framework.name)
    if left_out:
        return with_repeats(result, Repeats(api, times, left_out=left_out))
    # That an API is deprecated is no concern of this check, nor may it end one where warnings are errors.
    with suppress_warnings():
        try:
            target_results(replay.trial, direction)
        except (Skip, TargetError):
            # What golden could not judge does not run here either.
            return result
        try:
            unstable = unstable_outputs(replay.trial, direction, times)
        except (Skip, TargetError) as error:
            return _NONDETERMINISTIC.wrong(result, f"it ran on the device, but raises when it is run again: {error}")
    is_known = bool(unstable) and setup.policy.knows_nondeterministic(
        replay.call.api,
        framework=setup.framework.name,
        device=hardware(setup.device),
        backward=direction == "backward",
    )
    repeats = Repeats(api, times, unstable, is_known)
    compared = with_repeats(result, repeats)
    if is_known or not unstable:
        return compared
    return _NONDETERMINISTIC.failed(compared, {output.path: output.among(times) for output in unstable})


_DEPENDENT = RerunVerdict("batch_invariance", "depends on the batch", "It depends on the batch as well")
_UNSTABLE = RerunVerdict("batch_invariance", "nondeterministic", "It is nondeterministic as well")
_ONCE = RerunVerdict("batch_invariance", "wrong once", "It was wrong on a part of its batch as well")
_NO_ROWS = "no result has a row for each row of the batch"
_WHOLE_DIFFERS = "two runs of the whole batch differ"


class BatchInvariant:
    """Runs a call on parts of its batch; rows whose bits depend on the rest of the batch fail."""

    def __call__(self, judged: Judged) -> DirectionResult:
        """Run a call that runs on the device on parts of its batch."""
        return run_on_parts(judged.replay, judged.direction, judged.result)


def run_on_parts(replay: Replay, direction: Direction, result: DirectionResult) -> DirectionResult:
    """Return what came of a judged record once its call has run on parts of its batch.

    Parts have no layout of their own, so the whole batch is contiguous too.
    """
    return compared_with_parts(replay.contiguous_trial, direction, result, replay.call.name.qualified_api, row_cut)


def compared_with_parts(
    trial: Trial, direction: Direction, result: DirectionResult, api: str, rows: Callable[[Trial], Cut | str]
) -> DirectionResult:
    """Return a result that fails where rows depend on the batch; ``rows`` gives the cut, or why there is none.

    A call that raises on a part of its batch is wrong, too. Where parts differ, the whole and the parts run once more:
    what differs only once, or from itself, does not depend on the batch.
    """
    if not can_run_again(result):
        return result
    cut = rows(trial)
    if isinstance(cut, str):
        return with_batch_invariance(result, BatchInvariance(api, left_out=cut))
    # That an API is deprecated is no concern of this check, nor may it end one where warnings are errors.
    with suppress_warnings():
        try:
            target_results(trial, direction)
        except (Skip, TargetError):
            # What golden could not judge does not run here either.
            return result
        if compares_nothing(trial, cut, direction):
            return with_batch_invariance(result, BatchInvariance(api, left_out=_NO_ROWS))
        try:
            varying = variations(trial, cut, direction)
            unstable = unstable_outputs(trial, direction, 2) if varying else ()
            again = variations(trial, cut, direction) if varying and not unstable else ()
        except (Skip, TargetError) as error:
            return _DEPENDENT.wrong(result, f"it ran on the whole batch, but raises on a part of it: {error}")
    if unstable:
        compared = with_batch_invariance(result, BatchInvariance(api, left_out=_WHOLE_DIFFERS))
        return _UNSTABLE.failed(
            compared, {variation.path: f"{_WHOLE_DIFFERS}: {variation.among(2)}" for variation in unstable}
        )
    parts, paths = len(parts_of(cut.length)), {variation.path for variation in again}
    lasting = tuple(variation for variation in varying if variation.path in paths)
    compared = with_batch_invariance(result, BatchInvariance(api, parts, lasting))
    if lasting:
        return _DEPENDENT.failed(compared, {variation.path: variation.among(parts) for variation in lasting})
    once = {variation.path: f"{variation.among(parts)}; {PASSED_AGAIN}" for variation in varying}
    return _ONCE.failed(compared, once) if once else compared
