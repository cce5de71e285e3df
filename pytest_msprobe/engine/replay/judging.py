"""From the runs of a trial to the verdicts on what came out of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch

from msprobe_hooks.dump.names import Direction
from msprobe_standards import Standard, Verdict, fitting, in_parts, judge_tree, measure, msprobe_bounds
from msprobe_standards.dtypes import family
from pytest_msprobe.engine.replay.alignment import aligned
from pytest_msprobe.engine.replay.cancellation import cancelled, without_rounding
from pytest_msprobe.engine.replay.difference import describe_difference
from pytest_msprobe.engine.replay.factor_products import in_precision_of, relative_to_whole
from pytest_msprobe.engine.replay.in_place import JudgedMemory, judged_memory, require_one_place_each, unreturned
from pytest_msprobe.engine.replay.left_open import accept_what_is_open
from pytest_msprobe.engine.replay.math_mode import ModeJudge, SelectInMode
from pytest_msprobe.engine.replay.random_apis.properties import RandomProperty
from pytest_msprobe.engine.replay.recorded import Prepare, Recorded
from pytest_msprobe.engine.replay.seeding import drawn
from pytest_msprobe.engine.replay.selections import accept_equal_selections, gradient_of_selection
from pytest_msprobe.engine.replay.side import Run, Side
from pytest_msprobe.engine.replay.switched_off import PLACE, with_second_run
from pytest_msprobe.engine.replay.traits import traits_of
from pytest_msprobe.engine.replay.trial import Trial, several
from pytest_msprobe.engine.values.tree import map_tensors, tensors_with_paths
from pytest_msprobe.results.result import OutputResult
from pytest_msprobe.results.skips import Skip, SkipReason

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

        return with_second_run(trial, list(_judge_drawn(trial, randomness)), judge, recorded)
    # The golden run comes first: inputs that even the CPU rejects must not reach a device and kill its context.
    api = trial.subject.api
    if trial.golden.output is None and not trial.golden.changed:
        raise Skip(SkipReason.NOT_AN_OPERATION, f"{api} returns nothing and changes nothing")
    require_one_place_each(trial.golden)
    memory = _judged_memory(trial, trial.golden, trial.target)
    golden = _all_of(api, trial.golden, _detached, memory)
    target = _aligned(trial, _all_of(api, trial.target, _get(trial), memory))
    arguments = (trial.subject.arguments.args, trial.subject.arguments.kwargs)
    target["output"] = accept_equal_selections(trial.subject.operation, arguments, target["output"], golden["output"])
    target["output"] = accept_what_is_open(trial.subject.operation, target["output"], golden["output"])

    def baseline() -> Any:
        return trial.baseline and _aligned(trial, _all_of(api, trial.baseline, _detached, memory))

    def on_side(side: Side) -> Any:
        run = trial.forward_on(side)
        return run and _aligned(trial, _all_of(api, run, _detached, memory))

    def moved() -> list[Any]:
        return moved_results(trial, "forward")

    modes = in_mode and ModeJudge(trial, partial(in_mode, "forward"), on_side)
    by = partial(select, "forward")
    results = _judge(target, golden, baseline, moved, by, measure_all, recorded, in_mode=modes)
    if "baseline" in vars(trial) and all(
        result.verdict.outcome == "pass" and not result.math_mode for result in results
    ):
        results += _wrong_products(trial, target, golden, baseline, moved, by)
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

        return with_second_run(trial, [_judge_drawn_gradients(trial, randomness)], judge, recorded)
    golden = {"grad": _golden_gradients(trial)}
    noise = cancelled(golden["grad"], trial.grad_outputs.values())
    golden["grad"] = without_rounding(golden["grad"], noise)
    gradients = without_rounding(_present(trial.target_gradients, _get(trial)), noise)
    # Where torch has no gradient because nothing depends on the input, others say so with zeros.
    target = {
        "grad": {path: gradient for path, gradient in gradients.items() if path in golden["grad"] or gradient.any()}
    }

    def baseline() -> Any:
        found = trial.baseline_gradients
        return found and {"grad": without_rounding(_present(found, _detached), noise)}

    def moved() -> list[Any]:
        return [{"grad": without_rounding(each["grad"], noise)} for each in moved_results(trial, "backward")]

    def prepare(path: str, tensor: torch.Tensor) -> torch.Tensor:
        inner = path.removeprefix("grad.")
        return without_rounding({inner: tensor}, noise)[inner]

    def on_side(side: Side) -> Any:
        found = trial.gradients_on(side, trial.forward_on(side))
        return found and {"grad": without_rounding(_present(found, _detached), noise)}

    modes = in_mode and ModeJudge(trial, partial(in_mode, "backward"), on_side)
    by = partial(select, "backward")
    return _judge(target, golden, baseline, moved, by, measure_all, recorded, prepare, modes)


def _judge(
    target: Any,
    golden: Any,
    baseline: Callable[[], Any],
    moved: Callable[[], list[Any]],
    select: Callable[[Any], Standard],
    measure_all: bool,
    result: Recorded | None,
    prepare: Prepare = lambda path, tensor: tensor,
    in_mode: ModeJudge | None = None,
) -> list[OutputResult]:
    targets, goldens = dict(tensors_with_paths(target)), dict(tensors_with_paths(golden))
    recorded = None if result is None else result.beside(targets, goldens, prepare)

    def by_dtype(target: Any) -> list[tuple[str, Verdict]]:
        return judge_tree(
            target, golden, select=lambda _, leaf: select(leaf), baseline=baseline, recorded=recorded, moved=moved
        )

    judged = by_dtype(target) if in_mode is None else in_mode.judge(target, golden, by_dtype)
    results = [
        _output_result(path, verdict, targets.get(path), goldens.get(path), select if measure_all else None)
        for path, verdict in judged
    ]
    if in_mode is not None and in_mode.told:
        results = [replace(result, math_mode=in_mode.told.get(result.path, "")) for result in results]
    return results if recorded is None else list(map(recorded.without_missing, results))


def _wrong_products(
    trial: Trial,
    target: dict[str, Any],
    golden: dict[str, Any],
    baseline: Callable[[], Any],
    moved: Callable[[], list[Any]],
    select: Callable[[Any], Standard],
) -> list[OutputResult]:
    """Return the failures of what factors multiply to.

    It is only to be asked where the baseline was: factors within a few roundings of golden's multiply to the same.
    """
    products = traits_of(trial.subject.api).products
    if products is None:
        return []

    def of(tree: dict[str, Any]) -> dict[str, Any]:
        return {"product": relative_to_whole(products, tree["output"], golden["output"], several(trial.golden.output))}

    def of_baseline() -> Any:
        found = baseline()
        return found and of(found)

    ours = map_tensors(lambda product: in_precision_of(target["output"][0], product), of(target))
    results = _judge(ours, of(golden), of_baseline, lambda: list(map(of, moved())), select, False, None)
    return [result for result in results if result.verdict.outcome == "fail"]


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
    memory = JudgedMemory() if golden is None or target is None else _judged_memory(trial, golden, target)

    def tree(side: str, found: Any) -> Any:
        get = _get(trial) if side == "target" else _detached
        if direction == "backward":
            return {"grad": _present(found, get)}
        produced = _all_of(trial.subject.api, found, get, memory)
        return produced if side == "golden" else _aligned(trial, produced)

    trees = {side: tree(side, found) for side, found in sides.items() if found is not None and side in wanted}
    off = ran.get("switched_off")
    for side, second in produced(off, direction, wanted).items() if off is not None else ():
        trees.setdefault(side, {})[PLACE] = second
    return trees


def of_target(trial: Trial, direction: Direction) -> dict[str, Any]:
    """Return what a trial's target gave, as `produced` does, whatever the other sides and a second run gave.

    Raises Skip and TargetError as the target's runs do.
    """
    run, get = trial.target, _get(trial)
    if direction == "backward":
        return {"grad": _present(trial.target_gradients, get)}
    return _all_of(trial.subject.api, run, get, _judged_memory(trial, run, run))


def _judged_memory(trial: Trial, golden: Run, target: Run) -> JudgedMemory:
    return judged_memory(golden, target, same_function=trial.subject.target is trial.subject.golden)


def moved_results(trial: Trial, direction: Direction) -> list[Any]:
    """Return, as `produced` does, what golden gives for inputs moved by one rounding unit: one tree per draw."""
    if direction == "backward":
        return [{"grad": _present(gradients, _detached)} for gradients in trial.moved_gradients]
    memory = _judged_memory(trial, trial.golden, trial.target)
    return [_aligned(trial, _all_of(trial.subject.api, run, _detached, memory)) for run, _ in trial.moved]


def _aligned(trial: Trial, produced: dict[str, Any]) -> dict[str, Any]:
    """Return all that a run produced with its factors of matrices in golden's form."""
    alignment = traits_of(trial.subject.api).alignment
    if alignment is None:
        return produced
    return {**produced, "output": aligned(alignment, produced["output"], several(trial.golden.output))}


def _all_of(api: str, run: Run, get: Callable[[torch.Tensor], Any], memory: JudgedMemory) -> dict[str, Any]:
    """Return all that a forward run produced, as plain CPU tensors: what it returned and what it wrote to."""
    produced: dict[str, Any] = {"output": several(run.output)}
    specified = traits_of(api).specified_outputs
    if specified is not None:
        produced["output"] = produced["output"][:specified]
    found: dict[str, Any] = map_tensors(get, produced)
    # An argument that only one side has is reported by its own path.
    return {**found, "changed": memory.of(run, get)} if memory else found


def _wrong_dtypes(trial: Trial, output: Any) -> Iterator[OutputResult]:
    """Yield a failure for each output whose dtype is neither the recorded one nor the CPU's."""
    recorded = trial.subject.output_dtypes
    found = list(tensors_with_paths(output, "output"))
    if len(recorded) != len(found) or recorded == tuple(str(tensor.dtype) for _, tensor in found):
        return
    run = trial.baseline
    baseline = dict(tensors_with_paths(run and _all_of(trial.subject.api, run, _detached, JudgedMemory())))
    for (path, tensor), name in zip(found, recorded, strict=True):
        normal = baseline[path].dtype if path in baseline else tensor.dtype
        if tensor.dtype != normal and str(tensor.dtype) != name:
            reason = f"the dtype is {tensor.dtype}, but {name} was recorded and the CPU gives {normal}"
            yield _output_result(path, Verdict("fail", "dtype", reason, margin=math.inf), tensor, None)


def _judge_drawn(trial: Trial, randomness: RandomProperty) -> Iterator[OutputResult]:
    """Judge a random result, and the argument's memory where that is to hold it too."""
    run, subject, get = drawn(trial), trial.subject, trial.device.get
    output = map_tensors(get, run.output)
    yield _output_result("output", randomness.check_forward(output), output, None)
    for path, tensor in unreturned(run, subject.golden, subject.operation, subject.arguments):
        written = get(tensor)
        yield _output_result(f"changed.{path}", randomness.check_forward(written), written, None)


def _judge_drawn_gradients(trial: Trial, randomness: RandomProperty) -> OutputResult:
    output = map_tensors(trial.device.get, drawn(trial).output)
    gradients = _present(trial.target_gradients, trial.device.get)
    verdict = randomness.check_backward(output, list(trial.grad_outputs.values()), list(gradients.values()))
    if verdict is None:
        verdict = Verdict("skip", "random", "no property of this random gradient is known")
    return _output_result("grad", verdict, gradients, None)


def _detached(tensor: torch.Tensor) -> Any:
    return in_parts(tensor.detach())


def _get(trial: Trial) -> Callable[[torch.Tensor], Any]:
    return lambda tensor: in_parts(trial.device.get(tensor))


def _golden_gradients(trial: Trial) -> dict[str, torch.Tensor]:
    gradients = _present(trial.golden_gradients, _detached)
    if len(gradients) != 1 or list(trial.grad_outputs) != ["0"]:
        return gradients
    # The gradient of a selected value goes to the position that was selected, of several equal ones to any.
    arguments = (trial.subject.arguments.args, trial.subject.arguments.kwargs)
    outputs = (map_tensors(trial.device.get, trial.target.output), map_tensors(_detached, trial.golden.output))
    grad_output = trial.grad_outputs["0"]
    return {
        path: gradient_of_selection(trial.subject.operation, arguments, *outputs, grad_output, gradient)
        for path, gradient in gradients.items()
    }


def _present(
    gradients: Mapping[str, torch.Tensor | None], get: Callable[[torch.Tensor], Any]
) -> dict[str, torch.Tensor]:
    return dict(
        tensors_with_paths({path: get(gradient) for path, gradient in gradients.items() if gradient is not None})
    )


def _output_result(
    path: str,
    verdict: Verdict,
    target: Any,
    golden: torch.Tensor | None,
    measure_for: Callable[[Any], Standard] | None = None,
) -> OutputResult:
    tensor = next((tensor for _, tensor in tensors_with_paths(target)), None)
    result = OutputResult(
        path,
        verdict,
        target_dtype="" if tensor is None else str(tensor.dtype),
        golden_dtype="" if golden is None else str(golden.dtype),
        shape=() if tensor is None else tuple(tensor.shape),
        difference=_difference(tensor, golden) if verdict.outcome in ("fail", "warn") else "",
    )
    return result if measure_for is None else _measured(result, tensor, golden, measure_for)


def _difference(target: torch.Tensor | None, golden: torch.Tensor | None) -> str:
    return "" if target is None or golden is None else describe_difference(target, golden)


def _measured(
    result: OutputResult,
    target: torch.Tensor | None,
    golden: torch.Tensor | None,
    select: Callable[[Any], Standard],
) -> OutputResult:
    """Add every number by msprobe's bounds, and what the standard of this output reads by its own, if it has any."""
    if target is None or golden is None or target.shape != golden.shape or family(target.dtype) != family(golden.dtype):
        return result
    result = replace(result, measured=dict(measure(target, golden)))
    standard = fitting(select(target), target.dtype)
    bounds = standard.bounds(target.dtype)
    if bounds == msprobe_bounds(target.dtype):
        return result
    own = measure(target, golden, only=standard.wanted, bounds=bounds)
    return replace(result, own_bounds=asdict(bounds), own_measured=dict(own))
