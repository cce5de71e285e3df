"""Verdicts on the forward and backward direction of a trial, and failures that rounding of each step explains."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache, partial
from itertools import chain
from typing import Any

import numpy as np
import torch

from msprobe_hooks.dump.names import Direction
from msprobe_standards import Benchmark, Standard, Verdict
from msprobe_standards.sensitivity import has_lost_bits
from pytest_msprobe.engine.replay.calls.mutated_arguments import JudgedMemory, require_one_place_each, unreturned
from pytest_msprobe.engine.replay.calls.side import Gradients, Run, Side
from pytest_msprobe.engine.replay.judging.cancellation import cancelled_gradients, without_rounding
from pytest_msprobe.engine.replay.judging.inner_dropout import judge_inner_gradient, judge_inner_mask
from pytest_msprobe.engine.replay.judging.math_mode import ModeJudge, SelectInMode
from pytest_msprobe.engine.replay.judging.outputs import (
    JudgingContext,
    identity,
    judge_outputs,
    output_result,
    wrong_reconstructions,
)
from pytest_msprobe.engine.replay.judging.run_outputs import (
    all_of,
    detached,
    fetched_from,
    in_golden_form,
    judge_without_randomness_too,
    memory_of,
    present,
    rows_of,
)
from pytest_msprobe.engine.replay.ops.canonical_factors import nondifferentiable_reason
from pytest_msprobe.engine.replay.ops.op_info import accept_implementation_defined, op_info
from pytest_msprobe.engine.replay.ops.open_elements import accept_open_elements
from pytest_msprobe.engine.replay.ops.running_results import Steps
from pytest_msprobe.engine.replay.ops.selected_positions import (
    RankedPositions,
    accept_ties,
    gradient_of_selection,
    gradients_of_ranked,
)
from pytest_msprobe.engine.replay.ops.several_writers import accept_any_writer, accept_gradient_of_winner
from pytest_msprobe.engine.replay.ops.valid_rows import cut
from pytest_msprobe.engine.replay.random_apis.random_property import RandomProperty
from pytest_msprobe.engine.replay.random_apis.samples import Redrawn, judge_draws
from pytest_msprobe.engine.replay.trials.baseline_protocol import Prepare, Recorded
from pytest_msprobe.engine.replay.trials.remote_baseline import RemoteBaseline
from pytest_msprobe.engine.replay.trials.rng import run_seeded, runs_in_a_row
from pytest_msprobe.engine.replay.trials.trial import Trial, as_sequence
from pytest_msprobe.engine.values.pytree import first_leaf, map_tensors, tensors_with_paths
from pytest_msprobe.engine.values.strides import whole_memory
from pytest_msprobe.results.outcomes import Skip, SkipReason
from pytest_msprobe.results.result import OutputResult

_GRADIENTS_OF_INPUT = frozenset({"grad.args.0", "grad.kwargs.input", "grad.kwargs.self"})
# In narrower formats devices keep float32: a rounding of each step would soon leave nothing of what is added.
_DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def excuse_rounded_steps(
    results: list[OutputResult], target: Any, golden: Any, trial: Trial, direction: Direction
) -> list[OutputResult]:
    """Return results with those failures passed whose errors a device makes that rounds each step.

    ``target`` and ``golden`` are the judged trees of one direction of a trial.
    """
    running = op_info(trial.subject.operation).running
    wrong = {result.path for result in results if _is_wrong(result)}
    if running is None or not wrong:
        return results
    arguments = trial.subject.arguments
    if direction == "forward":
        steps = running.forward(arguments.args, arguments.kwargs)
    else:
        steps = running.backward(arguments.args, arguments.kwargs)
        wrong &= _GRADIENTS_OF_INPUT
    if steps is None:
        return results
    targets, goldens = dict(tensors_with_paths(target)), dict(tensors_with_paths(golden))
    explained = {path for path in wrong if _is_explained(targets.get(path), goldens.get(path), steps)}
    return [_excused(result) if result.path in explained else result for result in results]


def _is_wrong(result: OutputResult) -> bool:
    return result.verdict.outcome == "fail" and result.verdict.standard == Benchmark.name


def _is_explained(target: torch.Tensor | None, golden: torch.Tensor | None, steps: Steps) -> bool:
    if target is None or golden is None or target.shape != golden.shape or target.dtype not in _DTYPES:
        return False
    return not has_lost_bits(target, golden) and steps.are_rounded(target, golden)


def _excused(result: OutputResult) -> OutputResult:
    reason = f"excused, the rounding of each step explains it: {result.verdict.reason}"
    verdict = replace(result.verdict, outcome="pass", reason=reason, margin=1.0)
    return replace(result, verdict=verdict, difference="", error_map=None)


SelectStandard = Callable[[Direction, Any], Standard]


def judge_forward(
    trial: Trial,
    select: SelectStandard,
    *,
    measure_all: bool = False,
    recorded: Recorded | None = None,
    in_mode: SelectInMode | None = None,
) -> list[OutputResult]:
    """Judge what a call returned and what it changed, by what a ``recorded`` baseline has where there is one.

    ``in_mode`` gives what judges outputs that failed in the modes that the device states; without it they do not
    matter. Raises Skip and TargetError as the trial's runs do.
    """
    randomness = trial.randomness
    if randomness is not None:

        def judge(off: Trial, recorded: Recorded | None) -> list[OutputResult]:
            return judge_forward(off, select, measure_all=measure_all, recorded=recorded, in_mode=in_mode)

        drawn = [*_judge_drawn(trial, randomness), *judge_inner_mask(trial)]
        return judge_without_randomness_too(trial, drawn, judge, recorded)
    # The golden run comes first: inputs that even the CPU rejects must not reach a device and kill its context.
    api = trial.subject.api
    if trial.golden.output is None and not trial.golden.changed:
        raise Skip(SkipReason.NOT_AN_OPERATION, f"{api} returns nothing and changes nothing")
    require_one_place_each(trial.golden, trial.subject.arguments)
    memory = memory_of(trial, trial.golden, trial.target)
    golden = all_of(trial, trial.golden, detached, memory)
    target = in_golden_form(trial, all_of(trial, trial.target, fetched_from(trial), memory))
    arguments = (trial.subject.arguments.args, trial.subject.arguments.kwargs)
    traits = op_info(trial.subject.operation)
    accept_any_writer(traits.writers, arguments, target, golden)
    target["output"] = accept_ties(traits.selection, arguments, target["output"], golden["output"])
    accept_implementation_defined(trial.subject.operation, arguments, target, golden)
    left_open = accept_open_elements(traits.leaves_open, arguments, target, golden)

    def tree(run: Run) -> dict[str, Any]:
        return in_golden_form(trial, all_of(trial, run, detached, memory))

    context, by = _context(trial, "forward", tree, recorded, in_mode), partial(select, "forward")
    results = judge_outputs(target, golden, context, by, measure_all=measure_all)
    if "baseline" in vars(trial) and all(
        result.verdict.outcome == "pass" and not result.math_mode for result in results
    ):
        results += wrong_reconstructions(trial, target, golden, context, by)
    results = excuse_rounded_steps(results, target, golden, trial, "forward")
    if left_open:
        results = [replace(result, left_open=left_open.get(result.path, 0)) for result in results]
    return [*results, *_wrong_dtypes(trial, target["output"])]


def judge_backward(
    trial: Trial,
    select: SelectStandard,
    *,
    measure_all: bool = False,
    recorded: Recorded | None = None,
    in_mode: SelectInMode | None = None,
) -> list[OutputResult]:
    """Judge the gradients of a call's inputs, as `judge_forward` its results."""
    randomness = trial.randomness
    if randomness is not None:

        def judge(off: Trial, recorded: Recorded | None) -> list[OutputResult]:
            return judge_backward(off, select, measure_all=measure_all, recorded=recorded, in_mode=in_mode)

        drawn = [_judge_drawn_gradients(trial, randomness), *judge_inner_gradient(trial)]
        return judge_without_randomness_too(trial, drawn, judge, recorded)
    rows = rows_of(trial)
    golden = {"grad": cut(_golden_gradients(trial), rows)}
    _require_gradient(trial)
    noise = cancelled_gradients(golden["grad"], trial.grad_outputs.values())
    golden["grad"] = without_rounding(golden["grad"], noise)
    gradients = without_rounding(cut(present(trial.target_gradients, fetched_from(trial)), rows), noise)
    # Where torch has no gradient because nothing depends on the input, others say so with zeros.
    target = {
        "grad": {path: gradient for path, gradient in gradients.items() if path in golden["grad"] or gradient.any()}
    }
    arguments = (trial.subject.arguments.args, trial.subject.arguments.kwargs)
    accept_gradient_of_winner(op_info(trial.subject.operation).writers, arguments, target["grad"], golden["grad"])

    def tree(raw: Gradients) -> dict[str, Any]:
        return {"grad": without_rounding(cut(present(raw, detached), rows), noise)}

    def prepare(path: str, tensor: torch.Tensor) -> torch.Tensor:
        inner = path.removeprefix("grad.")
        return without_rounding({inner: tensor}, noise)[inner]

    context = _context(trial, "backward", tree, recorded, in_mode, prepare)
    arriving = cache(lambda: magnitude_of_arriving(trial.grad_outputs.values()))

    def by(leaf: Any) -> Standard:
        return select("backward", leaf).for_gradients(arriving)

    results = judge_outputs(target, golden, context, by, measure_all=measure_all)
    return excuse_rounded_steps(results, target, golden, trial, "backward")


def magnitude_of_arriving(gradients: Iterable[torch.Tensor]) -> float:
    """Return the greatest mean magnitude of gradients that arrive at a call, zeros included; 0 where there are none."""
    # Magnitudes are taken in the raised copy, where a large gradient would be held twice.
    dense = (gradient.to_dense() if gradient.is_sparse else gradient for gradient in gradients if gradient.numel())
    raised = (gradient.to(torch.float64, copy=True).abs_() for gradient in dense)
    return max((magnitudes.mean().item() for magnitudes in raised), default=0.0)


def _context(
    trial: Trial,
    direction: Direction,
    tree: Callable[[Any], dict[str, Any]],
    recorded: Recorded | None,
    in_mode: SelectInMode | None,
    prepare: Prepare = identity,
) -> JudgingContext:
    """Return what one direction is judged with; ``tree`` makes of a run, or of its gradients, what golden's is."""
    forward = direction == "forward"

    def baseline() -> Any:
        baseline_run = trial.baseline if forward else trial.baseline_gradients
        return baseline_run and tree(baseline_run)

    def moved() -> list[Any]:
        return [tree(variant) for variant in ([run for run, _ in trial.moved] if forward else trial.moved_gradients)]

    def on_side(side: Side) -> Any:
        run = trial.forward_on(side)
        result = run if forward else trial.gradients_on(side, run)
        return result and tree(result)

    def elsewhere() -> Any:
        return tree(trial.remote_run if forward else trial.remote_gradients)

    if trial.elsewhere is not None:
        recorded = RemoteBaseline(elsewhere)
    mode_judge = in_mode and ModeJudge(trial, partial(in_mode, direction), on_side)
    laid_out = partial(on_side, trial.laid_out_side) if trial.has_layouts(direction) else None
    return JudgingContext(baseline, moved, recorded, prepare, mode_judge, _batch(trial), laid_out)


def _batch(trial: Trial) -> tuple[int, ...]:
    """Return the shape of the batch if the call takes matrices: all but the last two dimensions of its first tensor."""
    first = first_leaf((trial.subject.arguments.args, trial.subject.arguments.kwargs), (torch.Tensor, np.ndarray))
    return () if first is None else tuple(first.shape[:-2])


def _wrong_dtypes(trial: Trial, output: Any) -> Iterator[OutputResult]:
    """Yield a failure for each output whose dtype is neither the recorded one nor the CPU's."""
    recorded = trial.subject.output_dtypes
    outputs = list(tensors_with_paths(output, "output"))
    if len(recorded) != len(outputs) or recorded == tuple(str(tensor.dtype) for _, tensor in outputs):
        return
    run = trial.baseline
    baseline = dict(tensors_with_paths(run and all_of(trial, run, detached, JudgedMemory())))
    for (path, tensor), name in zip(outputs, recorded, strict=True):
        normal = baseline[path].dtype if path in baseline else tensor.dtype
        if tensor.dtype != normal and str(tensor.dtype) != name:
            reason = f"the dtype is {tensor.dtype}, but {name} was recorded and the CPU gives {normal}"
            yield output_result(path, Verdict("fail", "dtype", reason, margin=math.inf), tensor, None)


def _judge_drawn(trial: Trial, randomness: RandomProperty) -> Iterator[OutputResult]:
    """Judge a random result, and the argument's memory where that is to hold it too."""
    subject, get = trial.subject, trial.device.get
    if isinstance(randomness, Redrawn) and trial.draws_anew:
        with runs_in_a_row(trial) as runs:
            run = next(runs)
            output = map_tensors(get, run.output)
            verdict = judge_draws(randomness, chain([output], (map_tensors(get, again.output) for again in runs)))
    else:
        run = run_seeded(trial)
        output = map_tensors(get, run.output)
        verdict = randomness.check_forward(output)
    yield output_result("output", verdict, output, None)
    for path, tensor in unreturned(run, subject.golden, subject.operation, subject.arguments):
        written = get(tensor)
        yield output_result(f"changed.{path}", randomness.check_forward(written), written, None)
    storages = memory_of(trial, run, run).storages
    after = JudgedMemory(storages=storages).of(run, get)
    for path, (before, others) in storages.items():
        name = f"{path}.around"
        yield output_result(f"changed.{name}", _unchanged(after[name], whole_memory(before)[others]), after[name], None)


def _unchanged(after: torch.Tensor, before: torch.Tensor) -> Verdict:
    """Return the verdict on memory that a call must not write to."""
    written = int((after.view(torch.uint8) != before.view(torch.uint8)).view(len(after), -1).any(1).sum())
    reason = f"{written} of {len(after)} elements that are none of the argument's were written to" if written else ""
    return Verdict("fail" if written else "pass", "binary_consistency", reason, margin=math.inf if written else 0.0)


def _judge_drawn_gradients(trial: Trial, randomness: RandomProperty) -> OutputResult:
    output = map_tensors(trial.device.get, run_seeded(trial).output)
    gradients = present(trial.target_gradients, trial.device.get)
    verdict = randomness.check_backward(output, list(trial.grad_outputs.values()), list(gradients.values()))
    if verdict is None:
        verdict = Verdict("skip", "random", "no property of this random gradient is known")
    return output_result("grad", verdict, gradients, None)


def _require_gradient(trial: Trial) -> None:
    """Raise Skip where golden's results say that the call has no gradient for those that arrive."""
    undifferentiable = op_info(trial.subject.api).undifferentiable
    outputs, golden = as_sequence(trial.target.output), as_sequence(trial.golden.output)
    if reason := nondifferentiable_reason(undifferentiable, outputs, golden, trial.grad_outputs):
        raise Skip(SkipReason.UNSPECIFIED, f"the gradient does not exist: {reason}")


def _golden_gradients(trial: Trial) -> dict[str, torch.Tensor]:
    gradients = present(trial.golden_gradients, detached)
    selection = op_info(trial.subject.operation).selection
    if selection is None:
        return gradients
    # The gradient of a selected value goes to the position that was selected, of several equal ones to any.
    arguments = (trial.subject.arguments.args, trial.subject.arguments.kwargs)
    outputs = (map_tensors(trial.device.get, trial.target.output), map_tensors(detached, trial.golden.output))
    if isinstance(selection, RankedPositions):
        return gradients_of_ranked(selection, arguments, *outputs, trial.grad_outputs, gradients)
    if len(gradients) != 1 or list(trial.grad_outputs) != ["0"]:
        return gradients
    grad_output = trial.grad_outputs["0"]
    return {
        path: gradient_of_selection(selection, arguments, *outputs, grad_output, gradient)
        for path, gradient in gradients.items()
    }
