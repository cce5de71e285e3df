"""Failures of 16-bit calls judged once more against golden in float64, which decides."""

from __future__ import annotations

from collections.abc import Callable

from pytest_msprobe.engine.replay.calls.arguments import CheckError
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.error_kinds import is_out_of_memory
from pytest_msprobe.results.outcomes import Skip
from pytest_msprobe.results.result import OutputResult

_RANDOM = "random"


def judged_in_float64(trial: Trial, judge: Callable[[], list[OutputResult]]) -> list[OutputResult]:
    """Return the verdicts on a trial, those against golden in float64 where golden was float32 and one of them fails.

    Golden in float32 may be further from the truth than a 16-bit result: where its own sums cancel or its exponentials
    overflow. Where the CPU has no float64, or no memory for it, the first verdicts stay.
    """
    # A failure of the forward call is no reason to judge its gradients by another golden result.
    trial.lower_golden()
    outputs = judge()
    if not any(_is_wrong(output) for output in outputs):
        return outputs
    # What fails of a random call may be the second run of it, without randomness.
    trials = [candidate for candidate in (trial, vars(trial).get("switched_off")) if candidate is not None]
    raised = [candidate for candidate in trials if candidate.raise_golden()]
    if not raised:
        return outputs
    try:
        return judge()
    except Exception as error:
        if not isinstance(error, (Skip, CheckError)) and not is_out_of_memory(error):
            raise
        for candidate in raised:
            candidate.lower_golden()
        return outputs


def _is_wrong(output: OutputResult) -> bool:
    return output.verdict.outcome == "fail" and output.verdict.standard != _RANDOM
