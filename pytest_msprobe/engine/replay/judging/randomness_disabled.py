"""A random call made a second time with its randomness switched off: judged like any other, and reported as such."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_msprobe.engine.replay.calls.subject import TargetError
from pytest_msprobe.engine.replay.trials.baseline_protocol import Prepare, Recorded, RecordedOutputs
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.results.result import OutputResult
from pytest_msprobe.results.skip_reasons import Skip

if TYPE_CHECKING:
    import torch

    from msprobe_standards import Metrics, Standard

#: Under this name the second run's results are next to those of the first: ``not_random.output.0``.
PLACE = "not_random"

Judge = Callable[[Trial, "Recorded | None"], list[OutputResult]]


def judge_without_randomness_too(
    trial: Trial, drawn: list[OutputResult], judge: Judge, recorded: Recorded | None
) -> list[OutputResult]:
    """Return what came of a random call, followed by what ``judge`` says of it with its randomness switched off.

    Where the second run can be judged, nothing is reported of random results that cannot; where neither can, its Skip
    passes through. Raises TargetError where the second run fails on the device.
    """
    off = trial.switched_off
    if off is None:
        return drawn
    judged = [result for result in drawn if result.verdict.outcome != "skip"]
    try:
        second = judge(off, None if recorded is None else _RecordedBelow(recorded))
    except Skip:
        if not judged:
            raise
        return judged
    except TargetError as error:
        raise TargetError(f"with {off.subject.changed}: {error}") from error
    return [*judged, *(_labelled(result, off.subject.changed) for result in second)]


def is_of_second_run(result: OutputResult) -> bool:
    """Return whether a result is that of a call with its randomness switched off."""
    return result.path.startswith(f"{PLACE}.")


def _labelled(result: OutputResult, changed: str) -> OutputResult:
    verdict = result.verdict
    judged = replace(verdict, reason=f"with {changed}: {verdict.reason}") if verdict.reason else verdict
    return replace(result, path=_below(result.path), verdict=judged)


def _below(path: str) -> str:
    return f"{PLACE}.{path}"


def _above(path: str) -> str:
    return path.removeprefix(f"{PLACE}.")


@dataclass(slots=True)
class _RecordedBelow:
    """What a recorded baseline has of the second run: where the run's own paths are asked for, those below PLACE."""

    whole: Recorded
    problem: str = ""

    def for_outputs(
        self, targets: Mapping[str, torch.Tensor], goldens: Mapping[str, torch.Tensor], prepare: Prepare
    ) -> RecordedOutputs:
        outputs, right = ({_below(path): each for path, each in side.items()} for side in (targets, goldens))
        return _OutputsBelow(self.whole.for_outputs(outputs, right, lambda path, each: prepare(_above(path), each)))


@dataclass(frozen=True, slots=True)
class _OutputsBelow:
    whole: RecordedOutputs

    def __call__(self, path: str, standard: Standard) -> Metrics | torch.Tensor | None:
        return self.whole(_below(path), standard)

    def without_missing(self, result: OutputResult) -> OutputResult:
        found = self.whole.without_missing(replace(result, path=_below(result.path)))
        return replace(found, path=result.path)
