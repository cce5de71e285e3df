"""What the runs of a trial gave, as trees of CPU tensors that can be held against each other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch

from msprobe_hooks.dump.names import Direction
from msprobe_standards import in_parts
from pytest_msprobe.engine.replay.calls.mutated_arguments import JudgedMemory, judged_memory
from pytest_msprobe.engine.replay.calls.side import Run
from pytest_msprobe.engine.replay.judging.randomness_disabled import PLACE
from pytest_msprobe.engine.replay.linalg.canonical_factors import aligned
from pytest_msprobe.engine.replay.ops.op_info import op_info
from pytest_msprobe.engine.replay.trials.trial import Trial, as_sequence
from pytest_msprobe.engine.values.pytree import map_tensors, tensors_with_paths


def produced(
    trial: Trial, direction: Direction, wanted: Collection[str] = ("target", "golden", "baseline")
) -> dict[str, Any]:
    """Return what the wanted sides of a judged trial gave, as trees of CPU tensors.

    A side that did not run, or could not, is missing; the baseline is made where golden was.
    """
    ran = vars(trial)
    forward = {"target": ran.get("target"), "golden": ran.get("golden")}
    backward = {"target": ran.get("target_gradients"), "golden": ran.get("golden_gradients")}
    sides: dict[str, Any] = forward if direction == "forward" else backward
    if sides["golden"] is not None and "baseline" in wanted:
        sides["baseline"] = trial.baseline if direction == "forward" else trial.baseline_gradients
    golden, target = forward["golden"] or forward["target"], forward["target"] or forward["golden"]
    memory = JudgedMemory() if golden is None or target is None else memory_of(trial, golden, target)

    def tree(side: str, found: Any) -> Any:
        get = fetched_from(trial) if side == "target" else detached
        if direction == "backward":
            return {"grad": present(found, get)}
        produced = all_of(trial, found, get, memory)
        return produced if side == "golden" else in_golden_form(trial, produced)

    trees = {side: tree(side, found) for side, found in sides.items() if found is not None and side in wanted}
    off = ran.get("switched_off")
    for side, second in produced(off, direction, wanted).items() if off is not None else ():
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
    specified = op_info(trial.subject.api).specified_outputs
    if specified is not None:
        produced["output"] = produced["output"][:specified]
    found: dict[str, Any] = map_tensors(get, produced)
    # An argument that only one side has is reported by its own path.
    return {**found, "changed": memory.of(run, get)} if memory else found


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
