"""Running a call again on the device, as a step after the verdict."""

from __future__ import annotations

import math
from dataclasses import replace

from msprobe_hooks.dump.names import Direction
from msprobe_standards.verdict import Verdict
from pytest_msprobe.devices.device import hardware
from pytest_msprobe.engine.replay.calls.subject import TargetError
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.reruns.determinism import nondeterminism_reason, target_results, unstable_outputs
from pytest_msprobe.engine.values.suppress_warnings import suppress_warnings
from pytest_msprobe.modes.check.follow_up import Judged, can_run_again
from pytest_msprobe.results.repeats import Repeats, with_repeats
from pytest_msprobe.results.result import DirectionResult, OutputResult
from pytest_msprobe.results.skip_reasons import Skip

_STANDARD = "determinism"


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
            return _wrong(result, f"it ran on the device, but raises when it is run again: {error}")
    is_known = bool(unstable) and setup.policy.knows_nondeterministic(
        replay.call.api,
        framework=setup.framework.name,
        device=hardware(setup.device),
        backward=direction == "backward",
    )
    repeats = Repeats(api, times, unstable, is_known)
    told = with_repeats(result, repeats)
    return told if is_known or not unstable else _unequal(told, repeats)


def _unequal(result: DirectionResult, repeats: Repeats) -> DirectionResult:
    """Return a result that fails for what is not the same in every run; what was wrong before stays the reason."""
    if result.verdict.outcome == "fail":
        return _wrong(result, str(repeats))
    verdicts = {output.path: _verdict(output.among(repeats.times)) for output in repeats.unstable}
    judged = {output.path: output for output in result.outputs}
    new = tuple(OutputResult(path, verdict) for path, verdict in verdicts.items() if path not in judged)
    outputs = (replace(output, verdict=verdicts.get(path, output.verdict)) for path, output in judged.items())
    return replace(result, verdict=next(iter(verdicts.values())), outputs=(*outputs, *new), skip=None)


def _wrong(result: DirectionResult, reason: str) -> DirectionResult:
    if result.verdict.outcome == "fail":
        return replace(result, notes=(*result.notes, f"It is nondeterministic as well: {reason}"))
    return replace(result, verdict=_verdict(reason), skip=None)


def _verdict(reason: str) -> Verdict:
    return Verdict("fail", _STANDARD, f"nondeterministic: {reason}", margin=math.inf)
