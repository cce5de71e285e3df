"""Credibility of a 16-bit CPU baseline: it counts as far as a correct device could err."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msprobe_standards.metrics import Metrics
    from msprobe_standards.protocol import Standard
    from msprobe_standards.verdict import Verdict

SAME_AS_CPU = "excused, the CPU's own kernel gives the same result, though no rounding explains its error"


def credibly_decided(
    standard: Standard, metrics: Metrics, baseline: Metrics, explained: Callable[[], Sequence[Metrics]]
) -> Verdict:
    """Judge by what counts of the CPU's errors (`Standard.credible`).

    A failure is judged again by what roundings of the inputs explain. Equal numbers are those of the CPU's own kernel.

    Args:
        standard: The standard.
        metrics: The metrics of the target.
        baseline: The metrics of the CPU's result.
        explained: Returns the metrics of golden for moved inputs; only called for a failure that they may excuse.

    Returns:
        The verdict.
    """
    counted = standard.credible(baseline)
    verdict = standard.decide(metrics, counted)
    if verdict.outcome != "fail" or counted is baseline:
        return verdict
    if dict(metrics) == dict(baseline):
        return replace(verdict, outcome="pass", reason=f"{SAME_AS_CPU}: {verdict.reason}", margin=1.0)
    if standard.decide(metrics, baseline).outcome == "fail":
        return verdict
    again = standard.decide(metrics, standard.credible(baseline, explained()))
    if again.outcome == "fail":
        return again
    reason = f"excused, roundings of the inputs explain what the baseline errs by: {verdict.reason}"
    return replace(verdict, outcome="pass", reason=reason, margin=1.0)
