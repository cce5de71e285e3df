"""Repetition of a call on the device, as a step after the verdict."""

from __future__ import annotations

from msprobe_hooks.dump.names import Direction
from pytest_msprobe.devices.device import hardware
from pytest_msprobe.engine.replay.calls.arguments import TargetError
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.reruns.determinism import nondeterminism_reason, target_results, unstable_outputs
from pytest_msprobe.engine.values.suppress_warnings import suppress_warnings
from pytest_msprobe.modes.check.follow_up import Judged, can_run_again
from pytest_msprobe.modes.check.reruns.rerun_results import Repeats, RerunVerdict, with_repeats
from pytest_msprobe.results.result import DirectionResult
from pytest_msprobe.results.skip_reasons import Skip

_VERDICT = RerunVerdict("determinism", "nondeterministic", "It is nondeterministic as well")


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
            return _VERDICT.wrong(result, f"it ran on the device, but raises when it is run again: {error}")
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
    return _VERDICT.failed(compared, {output.path: output.among(times) for output in unstable})
