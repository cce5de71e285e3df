"""Running a call again on the device, as a step after the verdict."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import pytest

from msprobe_hooks.dump.names import Direction
from msprobe_standards.verdict import Verdict
from pytest_msprobe.devices.device import hardware
from pytest_msprobe.engine.replay.calls.subject import TargetError
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.reruns.determinism import target_results, unstable_outputs, why_unrepeatable
from pytest_msprobe.engine.values.suppress_warnings import unwarned
from pytest_msprobe.modes.check.follow_up import Judged, can_run_again
from pytest_msprobe.results.repeats import Repeats, with_repeats
from pytest_msprobe.results.result import DirectionResult, OutputResult
from pytest_msprobe.results.skip_reasons import Skip
from pytest_msprobe.run.options import number

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
    left_out = why_unrepeatable(replay.trial, setup.framework.name)
    if left_out:
        return with_repeats(result, Repeats(api, times, left_out=left_out))
    # That an API is deprecated is no concern of this check, nor may it end one where warnings are errors.
    with unwarned():
        try:
            target_results(replay.trial, direction)
        except (Skip, TargetError):
            # What golden could not judge does not run here either.
            return result
        try:
            unstable = unstable_outputs(replay.trial, direction, times)
        except (Skip, TargetError) as error:
            return _wrong(result, f"it has run on the device, and raises when it is run again: {error}")
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


def add_options(group: pytest.OptionGroup) -> None:
    """Add the option to the group, and the setting to its parser."""
    group.addoption(
        "--msprobe-repeat",
        metavar="N",
        help="run each call N times on the device, 2 or more, and fail one that differs from itself (default: once)",
    )
    assert group.parser is not None
    # Only with a type does pytest take a number of pyproject.toml for one; before 8.4 it knows none for it.
    kind: Literal["int"] | None = "int" if pytest.version_tuple >= (8, 4) else None
    group.parser.addini(
        "msprobe_repeat",
        "how often each call runs on the device, see --msprobe-repeat (default: once)",
        type=kind,
        default=None,
    )


def read_repeat(config: pytest.Config) -> int | None:
    """Return how often a call runs, None for once. Raises OptionError."""
    times = number(config, "repeat", int, "a number of runs, 2 or more", lambda times: times >= 2)
    return None if times is None else int(times)
