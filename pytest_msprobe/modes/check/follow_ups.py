"""What happens after a verdict, by the options of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_msprobe.results.outcomes import Breakdown

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.modes.check.cases.saving import SaveFailure
    from pytest_msprobe.modes.check.judged import FollowUp, Judged
    from pytest_msprobe.modes.check.options import CheckOptions
    from pytest_msprobe.results.result import DirectionResult
    from pytest_msprobe.run.options import Options


def follow_ups(options: Options, check: CheckOptions, fingerprint: Callable[[Dump], str]) -> list[FollowUp]:
    """Return what a run's options ask for, in the order in which it happens; ``fingerprint`` digests a dump."""
    steps: list[FollowUp] = []
    save: SaveFailure | None = None
    if check.save_baseline_tensors is not None:
        from pytest_msprobe.modes.check.baselines.keeping import KeepTensors

        steps.append(KeepTensors(check.save_baseline_tensors, fingerprint))
    if check.save is not None:
        from pytest_msprobe.modes.check.cases.saving import SaveFailure

        save = SaveFailure(check.save, options.policy, options.level)
        steps.append(save)
    if check.explore is not None:
        from pytest_msprobe.modes.check.explore.follow_up import Explore

        steps.append(Explore(check.explore, options.timeout, save))
    return steps


def followed_up(judged: Judged, steps: list[FollowUp]) -> DirectionResult:
    """Return what came of a record after every step; one that ran out of memory is left alone, to be tried again."""
    if judged.result.breakdown is Breakdown.OOM:
        return judged.result
    for step in steps:
        judged = replace(judged, result=step(judged))
    return judged.result
