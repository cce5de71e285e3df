"""Running a call with perturbed inputs, as a step after the verdict."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from pytest_msprobe.engine.replay.calls.subject import TargetError
from pytest_msprobe.engine.replay.reruns.determinism import nondeterminism_reason
from pytest_msprobe.engine.values.suppress_warnings import suppress_warnings
from pytest_msprobe.extensions.free_benchmark.perturbation import perturbed_call
from pytest_msprobe.modes.check.follow_up import Judged, can_run_again
from pytest_msprobe.results.perturbed import Perturbed, with_perturbed
from pytest_msprobe.results.result import DirectionResult
from pytest_msprobe.results.skip_reasons import Skip


class Perturb:
    """Perturbs each call by the perturbation of that name.

    A result that changes too much is a warning and no failure: a right kernel does the same where the call is
    ill-conditioned. So is msprobe's handler ``check``, which reports and goes on with the original result.
    """

    def __init__(self, perturbation: str) -> None:
        self._perturbation = perturbation

    def __call__(self, judged: Judged) -> DirectionResult:
        """Perturb a call that runs on the device."""
        if not can_run_again(judged.result):
            return judged.result
        replay = judged.replay
        left_out = nondeterminism_reason(replay.trial, replay.setup.framework.name)
        if left_out:
            api = replay.call.name.qualified_api
            return with_perturbed(
                judged.result, Perturbed(api, self._perturbation, judged.direction, left_out=left_out)
            )
        # That an API is deprecated is no concern of this check, nor may it end one where warnings are errors.
        with suppress_warnings():
            try:
                perturbed = perturbed_call(replay.trial, judged.direction, self._perturbation)
            except (Skip, TargetError):
                # What golden could not judge does not run here either.
                return judged.result
        return _reported(judged.result, perturbed)


def _reported(result: DirectionResult, perturbed: Perturbed) -> DirectionResult:
    outcome = result.verdict.outcome
    if not perturbed.inconsistent:
        return with_perturbed(result, perturbed)
    if outcome == "fail":
        reported = with_perturbed(result, perturbed)
        return replace(reported, notes=(*reported.notes, f"It is sensitive as well: {perturbed}"))
    reported = with_perturbed(result, msgspec.structs.replace(perturbed, accuracy=outcome))
    # Standard, metrics and margin stay those of the accuracy.
    reason = "; ".join(filter(None, (result.verdict.reason, str(perturbed))))
    return replace(reported, verdict=replace(result.verdict, outcome="warn", reason=reason), skip=None)
