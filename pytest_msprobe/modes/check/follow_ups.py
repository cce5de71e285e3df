"""Steps after a verdict, by the options of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_msprobe.results.outcomes import Breakdown, describe_error
from pytest_msprobe.results.result import failed_without_result

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.modes.check.follow_up import FollowUp, Judged
    from pytest_msprobe.modes.check.options import CheckOptions
    from pytest_msprobe.modes.check.save_case import SaveFailure
    from pytest_msprobe.results.result import DirectionResult
    from pytest_msprobe.run.options import Options


def follow_ups(options: Options, check: CheckOptions, fingerprint: Callable[[Dump], str]) -> list[FollowUp]:
    """Return what a run's options ask for, in the order in which it happens; ``fingerprint`` digests a dump."""
    from pytest_msprobe.modes.check.failure_context import ReportLeftToCpu, add_failure_context

    steps: list[FollowUp] = [add_failure_context]
    save: SaveFailure | None = None
    if check.save_baseline_tensors is not None:
        from pytest_msprobe.modes.check.baselines.save_tensors import KeepTensors

        steps.append(KeepTensors(check.save_baseline_tensors, fingerprint))
    steps.append(ReportLeftToCpu())
    # What these find is a failure to be saved like any other.
    if check.repeat is not None:
        from pytest_msprobe.modes.check.reruns import Repeat

        steps.append(Repeat(check.repeat))
    if check.batch_invariant:
        from pytest_msprobe.modes.check.reruns import BatchInvariant

        steps.append(BatchInvariant())
    steps += filter(None, (feature.follow_up(options) for feature in check.features))
    if check.save is not None:
        from pytest_msprobe.modes.check.save_case import SaveFailure

        save = SaveFailure(check.save, options.policy, options.level)
        steps.append(save)
    steps += filter(None, (feature.last_step(options, save) for feature in check.features))
    return steps


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
