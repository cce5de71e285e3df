"""The ways to judge one direction of a call, tried in order until one of them answers.

A strategy returns the verdicts on all outputs, or None for a call that is not its own. It raises Skip, CheckError and
TargetError as the trial's runs do, and NoRuleError where the policy has no standard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from pytest_msprobe.engine.replay.judging.directions import judge_backward, judge_forward
from pytest_msprobe.engine.replay.judging.float64_golden import judged_in_float64
from pytest_msprobe.engine.replay.prepared_call import DirectionCheck
from pytest_msprobe.engine.replay.trials.memory_budget import return_freed_before
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.extensions.screening.screen_trial import cleared
from pytest_msprobe.results.result import OutputResult

Strategy: TypeAlias = Callable[[DirectionCheck], "list[OutputResult] | None"]
JudgeForward: TypeAlias = Callable[[Trial], list[OutputResult]]


def judge_by_screening(check: DirectionCheck) -> list[OutputResult] | None:
    """Return the verdicts on a product that screening clears, whose inputs show what the recorded ones did."""
    prepared, direction = check.prepared, check.direction
    if check.recorded is not None or not prepared.may_be_screened:
        return None
    passed = cleared(prepared.trial, direction, partial(prepared.selection.select, direction), prepared.setup)
    if passed and prepared.has_informative_inputs(direction):
        check.screened.extend(each.seen for each in passed if each.seen is not None)
        return [each.result for each in passed]
    prepared.trial.redraw_inputs()
    return None


def judge_in_blocks(check: DirectionCheck) -> list[OutputResult] | None:
    """Return the verdicts on a large call whose golden is computed in blocks; raises as `LargeCall`."""
    prepared, direction = check.prepared, check.direction
    # Whether a call is large is known once its trial is made.
    trial, large = prepared.trial, prepared.large
    if large is None:
        return None
    select = partial(prepared.selection.select, direction)
    return large.judged(trial, direction, select, lambda: prepared.has_informative_inputs(direction))


def judge_exactly(check: DirectionCheck) -> list[OutputResult]:
    """Return the verdicts on any call, by all values of its target and golden runs."""
    prepared, direction = check.prepared, check.direction
    judge = judge_forward if direction == "forward" else judge_backward
    # The selection is that of the trial which is judged.
    trial, selection = prepared.informative_trial(direction), prepared.selection
    judged = partial(
        judge,
        trial,
        selection.select,
        measure_all=prepared.setup.measure_all,
        recorded=check.recorded,
        in_mode=selection.select_in_mode if prepared.setup.math_mode == "auto" else None,
    )
    return judged_in_float64(trial, judged) if prepared.setup.policy.failures_in_float64 else judged()


def judge_by(judge: JudgeForward) -> Strategy:
    """Return the strategy of another judge than the policy; it looks at whole results, which have to fit in memory."""

    def judge_whole(check: DirectionCheck) -> list[OutputResult]:
        trial, large = check.prepared.trial, check.prepared.large
        if large is not None:
            large.admit_whole()
        return judge(trial)

    return judge_whole


#: How a policy judges: the cheapest way first.
BY_POLICY: tuple[Strategy, ...] = (judge_by_screening, judge_in_blocks, judge_exactly)


def judge_by_first(strategies: Sequence[Strategy], check: DirectionCheck) -> list[OutputResult]:
    """Return the verdicts of the first strategy that answers; the last one answers for every call."""
    if check.prepared.large is not None:
        return_freed_before(check.prepared.call)
    return next(outputs for judge in strategies if (outputs := judge(check)) is not None)
