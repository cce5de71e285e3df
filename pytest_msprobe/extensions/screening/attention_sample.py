"""Heads of an attention that are computed exactly, and what the standard says of them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from msprobe_hooks.dump.names import Direction, api_record
from msprobe_standards import Metrics, Verdict, measure
from msprobe_standards.benchmark import Benchmark
from msprobe_standards.dtypes import roundoffs_allowed
from msprobe_standards.verdict import is_rough
from pytest_msprobe.engine.replay.calls.golden import baseline_side, golden_side
from pytest_msprobe.engine.replay.calls.side import Side, run_backward, run_forward
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.error_kinds import REFUSALS
from pytest_msprobe.extensions.screening.attention import Attention, Place

Results = dict[str, list[torch.Tensor]]
"""By the path of an output what each group of a sample has of it, (heads, rows, columns)."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict on a sample, and the error that it shows to be normal.

    ``roundoffs`` is the root mean square of that, in unit roundoffs; ``normal`` are the sample's results that show it:
    the baseline's, or the target's own where they pass by the standard's floor alone.
    """

    verdict: Verdict
    roundoffs: float
    normal: list[torch.Tensor]


class AttentionSample:
    """Groups of heads of which one direction of a trial is computed again, as it is for the whole call."""

    def __init__(self, trial: Trial, direction: Direction, attention: Attention, places: Sequence[Place]) -> None:
        self._trial = trial
        self._direction = direction
        self._attention = attention
        self._places = places
        self._parts = [attention.part(trial.subject.arguments, place) for place in places]

    @functools.cached_property
    def golden(self) -> Results | None:
        """What golden gives for the sample; None where the CPU cannot compute it."""
        return self._computed(golden_side(self._trial.subject.operation, self._parts[0]))

    @property
    def elements(self) -> dict[str, torch.Tensor]:
        """Golden's elements, by path."""
        return {path: _in_a_row(groups) for path, groups in (self.golden or {}).items()}

    @functools.cached_property
    def _baseline(self) -> Results | None:
        return self._computed(baseline_side(None))

    def judged(self, path: str, result: torch.Tensor, scale: float, standard: Benchmark) -> Judged:
        """Return the verdict on the sample of a whole ``result`` with its scale, by the limits of its size."""
        golden, bounds = self.elements[path], standard.bounds(result.dtype)

        def measured(values: list[torch.Tensor]) -> Metrics:
            found = measure(_in_a_row(values), golden, only=standard.wanted, bounds=bounds, scale=scale)
            return replace(found, numel=result.numel())

        target = [self._attention.heads(result, place) for place in self._places]
        metrics = measured(target)
        floor = standard.floor or roundoffs_allowed(result.dtype)
        settled = standard.settled(metrics)
        is_clear = settled is not None and settled.outcome == "pass" and not is_rough(settled)
        if is_clear or self._baseline is None:
            return Judged(settled or standard.decide(metrics, None), floor, target)
        baseline = measured(self._baseline[path])
        normal = max(floor, baseline["rms_scaled_error"])
        return Judged(standard.decide(metrics, standard.credible(baseline)), normal, self._baseline[path])

    def _computed(self, side: Side) -> Results | None:
        try:
            found = [self._of_group(i, side) for i in range(len(self._places))]
        except REFUSALS:
            return None
        return {path: [each[path].detach().flatten(0, -3) for each in found] for path in found[0]}

    def _of_group(self, i: int, side: Side) -> dict[str, torch.Tensor]:
        """Return the results of one group, by path."""
        subject, backward = self._trial.subject, self._direction == "backward"
        record = api_record(subject.key, self._direction)
        run = run_forward(
            subject.golden, self._parts[i], side, operation=subject.operation, record=record, differentiate=backward
        )
        if not backward:
            return {"output.0": run.output}
        arriving = {path: self._attention.cut(each, self._places[i]) for path, each in self._trial.grad_outputs.items()}
        gradients = run_backward(run, arriving, side, record=record)
        return {f"grad.{path}": gradient for path, gradient in gradients.items() if gradient is not None}


def _in_a_row(groups: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([each.reshape(-1) for each in groups])
