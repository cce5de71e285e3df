"""Outputs of a trial's runs, with randomness disabled where a call allows it, and a note on conditioning."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from msprobe_hooks.dump.effects import operation_effects
from msprobe_hooks.dump.names import Direction
from msprobe_standards import amplification, in_parts
from pytest_msprobe.engine.replay.calls.arguments import TargetError
from pytest_msprobe.engine.replay.calls.mutated_arguments import JudgedMemory, judged_memory
from pytest_msprobe.engine.replay.calls.side import Run
from pytest_msprobe.engine.replay.ops.canonical_factors import aligned
from pytest_msprobe.engine.replay.ops.op_info import op_info
from pytest_msprobe.engine.replay.ops.valid_rows import cut, defined_rows
from pytest_msprobe.engine.replay.trials.baseline_protocol import Prepare, Recorded, RecordedOutputs
from pytest_msprobe.engine.replay.trials.input_perturbation import input_unit_roundoff
from pytest_msprobe.engine.replay.trials.trial import Trial, as_sequence
from pytest_msprobe.engine.values.pytree import map_tensors, tensors_with_paths
from pytest_msprobe.results.outcomes import Skip
from pytest_msprobe.results.result import DirectionResult, OutputResult

if TYPE_CHECKING:
    import torch

    from msprobe_standards import Metrics, Standard

#: Under this name the second run's results are next to those of the first: ``not_random.output.0``.
PLACE = "not_random"

Judge = Callable[[Trial, "Recorded | None"], list[OutputResult]]

#: Under this name a failing result holds how many times each wrong output amplifies its inputs' rounding, by path.
AMPLIFICATION = "amplification"

# Two of the digits that inputs hold are lost then: docs/standards-reference.md, "Where the constants come from".
_ILL_CONDITIONED = 100.0
# Below, amplification explains nothing that the standards do not allow anyway.
_WORTH_SAYING = 10.0

# An explanation may not take a slow item beyond its time limit. A choice in seconds: it runs golden twice more.
_LONGEST_EXPLAINED = 5.0


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
    """Recorded baseline of the second run: where the run's own paths are asked for, those below PLACE."""

    whole: Recorded
    problem: str = ""

    def for_outputs(
        self, targets: Mapping[str, torch.Tensor], goldens: Mapping[str, torch.Tensor], prepare: Prepare
    ) -> RecordedOutputs:
        outputs, right = ({_below(path): tensor for path, tensor in side.items()} for side in (targets, goldens))
        return _OutputsBelow(self.whole.for_outputs(outputs, right, lambda path, tensor: prepare(_above(path), tensor)))


@dataclass(frozen=True, slots=True)
class _OutputsBelow:
    whole: RecordedOutputs

    def __call__(self, path: str, standard: Standard) -> Metrics | torch.Tensor | None:
        return self.whole(_below(path), standard)

    def without_missing(self, result: OutputResult) -> OutputResult:
        whole_result = self.whole.without_missing(replace(result, path=_below(result.path)))
        return replace(whole_result, path=result.path)


def produced(
    trial: Trial, direction: Direction, names: Collection[str] = ("target", "golden", "baseline")
) -> dict[str, Any]:
    """Return what the wanted sides of a judged trial gave, as trees of CPU tensors.

    A side that did not run, or could not, is missing; the baseline is made where golden was.
    """
    ran = vars(trial)
    forward = {"target": ran.get("target"), "golden": ran.get("golden")}
    backward = {"target": ran.get("target_gradients"), "golden": ran.get("golden_gradients")}
    sides: dict[str, Any] = forward if direction == "forward" else backward
    if sides["golden"] is not None and "baseline" in names:
        sides["baseline"] = trial.baseline if direction == "forward" else trial.baseline_gradients
    golden, target = forward["golden"] or forward["target"], forward["target"] or forward["golden"]
    memory = JudgedMemory() if golden is None or target is None else memory_of(trial, golden, target)

    def tree(side: str, run: Any) -> Any:
        get = fetched_from(trial) if side == "target" else detached
        if direction == "backward":
            return {"grad": present(run, get)}
        produced = all_of(trial, run, get, memory)
        return produced if side == "golden" else in_golden_form(trial, produced)

    trees = {side: tree(side, run) for side, run in sides.items() if run is not None and side in names}
    off = ran.get("switched_off")
    for side, second in produced(off, direction, names).items() if off is not None else ():
        trees.setdefault(side, {})[PLACE] = second
    return trees


def of_target(trial: Trial, direction: Direction) -> dict[str, Any]:
    """Return what a trial's target gave, as `produced` does, whatever the other sides and a second run gave.

    Raises Skip and TargetError as the target's runs do.
    """
    run, get = trial.target, fetched_from(trial)
    if direction == "backward":
        return {"grad": present(trial.target_gradients, get)}
    return all_of(trial, run, get, memory_of(trial, run, run))


def moved_results(trial: Trial, direction: Direction) -> list[Any]:
    """Return, as `produced` does, what golden gives for inputs moved by one rounding unit: one tree per draw."""
    if direction == "backward":
        return [{"grad": present(gradients, detached)} for gradients in trial.moved_gradients]
    memory = memory_of(trial, trial.golden, trial.target)
    return [in_golden_form(trial, all_of(trial, run, detached, memory)) for run, _ in trial.moved]


def all_of(trial: Trial, run: Run, get: Callable[[torch.Tensor], Any], memory: JudgedMemory) -> dict[str, Any]:
    """Return all that a forward run produced, as plain CPU tensors: what it returned and what it wrote to."""
    produced: dict[str, Any] = {"output": as_sequence(run.output)}
    defined = operation_effects(trial.subject.operation).defined
    if defined is not None:
        produced["output"] = produced["output"][:defined]
    results: dict[str, Any] = map_tensors(get, cut(produced, rows_of(trial)))
    # An argument that only one side has is reported by its own path.
    return {**results, "changed": memory.of(run, get)} if memory else results


def rows_of(trial: Trial) -> tuple[int, int] | None:
    """Return how many rows of a trial's results are defined, of how many; None where all are."""
    subject = trial.subject
    return defined_rows(subject.operation, subject.arguments.args, subject.arguments.kwargs)


def in_golden_form(trial: Trial, produced: dict[str, Any]) -> dict[str, Any]:
    """Return all that a run produced with its factors of matrices in golden's form."""
    alignment = op_info(trial.subject.api).alignment
    if alignment is None:
        return produced
    return {**produced, "output": aligned(alignment, produced["output"], as_sequence(trial.golden.output))}


def memory_of(trial: Trial, golden: Run, target: Run) -> JudgedMemory:
    """Return what memory of the arguments is judged where these two of a trial's runs are held against each other."""
    subject = trial.subject
    return judged_memory(
        golden,
        target,
        subject.operation,
        subject.arguments,
        same_function=subject.target is subject.golden,
    )


def present(
    gradients: Mapping[str, torch.Tensor | None], get: Callable[[torch.Tensor], Any]
) -> dict[str, torch.Tensor]:
    """Return the gradients that there are as ``get`` brings them to the CPU, by path."""
    return dict(
        tensors_with_paths({path: get(gradient) for path, gradient in gradients.items() if gradient is not None})
    )


def detached(tensor: torch.Tensor) -> Any:
    """Return a CPU tensor without its graph, in the plain parts that it consists of."""
    return in_parts(tensor.detach())


def fetched_from(trial: Trial) -> Callable[[torch.Tensor], Any]:
    """Return what brings a tensor from the trial's device to the CPU, in plain parts."""
    return lambda tensor: in_parts(trial.device.get(tensor))


def add_conditioning_note(result: DirectionResult, trial: Trial, direction: Direction) -> DirectionResult:
    """Return a failing result with how much the call amplifies its inputs' rounding, for each wrong output.

    It costs two golden runs, unless the verdict has asked for them already, and nothing where no input is rounded or
    where checking the record took long. The verdict stays as it is; all does where golden cannot be moved.
    """
    unit = input_unit_roundoff(trial.subject.arguments)
    wrong = {output.path for output in result.outputs if output.verdict.outcome == "fail"}
    if not wrong or not unit or trial.randomness is not None or result.seconds > _LONGEST_EXPLAINED:
        return result
    factors = {path: factor for path, factor in _factors(trial, direction, unit) if path in wrong}
    outputs = tuple(_with_note(output, factors.get(output.path), unit) for output in result.outputs)
    return replace(result, outputs=outputs).with_extra(AMPLIFICATION, factors) if factors else result


def _factors(trial: Trial, direction: Direction, unit: float) -> Iterator[tuple[str, float]]:
    golden = produced(trial, direction, ("golden",)).get("golden")
    draws = [dict(tensors_with_paths(draw)) for draw in moved_results(trial, direction)]
    for path, tensor in tensors_with_paths(golden if draws else None):
        moved = [draw[path] for draw in draws if path in draw]
        if len(moved) == len(draws) and _are_comparable(tensor, moved):
            factor = amplification(tensor, moved, unit)
            if math.isfinite(factor):
                yield path, factor


def _are_comparable(golden: torch.Tensor, moved: list[torch.Tensor]) -> bool:
    computed = golden.is_floating_point() or golden.is_complex()
    return computed and bool(golden.numel()) and all(draw.shape == golden.shape for draw in moved)


def _with_note(output: OutputResult, factor: float | None, unit: float) -> OutputResult:
    if factor is None or factor < _WORTH_SAYING:
        return output
    text = (
        f"the call amplifies its inputs' rounding {_rounded(factor)} times, so relative errors of {factor * unit:.1g} "
        f"are to be expected{': it is ill-conditioned' if factor >= _ILL_CONDITIONED else ''}"
    )
    return replace(output, difference="\n".join(filter(None, [output.difference, text])))


def _rounded(factor: float) -> str:
    """Return two digits of a factor, whose draws scatter more than a third one would say."""
    if factor < _ILL_CONDITIONED:
        return f"{factor:.2g}"
    mantissa, exponent = f"{factor:.0e}".split("e")
    return f"{mantissa}e{int(exponent)}"
