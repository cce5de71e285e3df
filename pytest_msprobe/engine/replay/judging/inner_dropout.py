"""Dropout mask inside attention, judged by a call of the same form whose results show it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import torch

from pytest_msprobe.engine.replay.judging.outputs import output_result
from pytest_msprobe.engine.replay.ops.op_info import op_info
from pytest_msprobe.engine.replay.random_apis.attention_dropout import (
    ReadableCall,
    WeightMask,
    identity_rows,
    judge_gradient_of_values,
)
from pytest_msprobe.engine.replay.random_apis.probability_switch import Switch
from pytest_msprobe.engine.replay.random_apis.random_property import tensors
from pytest_msprobe.engine.replay.random_apis.samples import judge_draws
from pytest_msprobe.engine.replay.trials.rng import run_seeded, runs_in_a_row
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.pytree import map_tensors, tensors_with_paths
from pytest_msprobe.results.result import OutputResult

#: The path of what is said of the mask, and of the gradient's.
PLACE, GRADIENT_PLACE = "dropout_mask", "dropout_mask.grad"


def judge_inner_mask(trial: Trial) -> Iterator[OutputResult]:
    """Yield the verdict on the mask that a random call of attention draws inside; none where it cannot be read.

    Raises Skip and TargetError as the trial's runs do.
    """
    switch, readable = op_info(trial.subject.api).switch, _readable_call(trial)
    if readable is None or switch is None:
        return
    arguments = trial.subject.arguments
    p = _probability(trial, switch(arguments.args, arguments.kwargs))
    off = switch(readable.args, readable.kwargs).applied(readable.args, readable.kwargs)
    weights = tensors(_with_arguments(trial, *off).golden.output)[0].detach()
    with runs_in_a_row(_with_arguments(trial, readable.args, readable.kwargs)) as runs:
        outputs = (tensors(map_tensors(trial.device.get, run.output))[:1] for run in runs)
        first = next(outputs)
        verdict = judge_draws(WeightMask(weights, p), chain([first], outputs))
    yield output_result(PLACE, verdict, first[0], None)


def judge_inner_gradient(trial: Trial) -> Iterator[OutputResult]:
    """Yield the verdict on mask and scale in the gradient of the values, as `judge_inner_mask` on the result's."""
    readable = _readable_call(trial)
    if readable is None or readable.positions is None or readable.value not in trial.subject.arguments.differentiable:
        return
    positions = readable.positions

    def arriving(results: Any) -> dict[str, torch.Tensor]:
        path, output = next(iter(tensors_with_paths(results)))
        return {path: identity_rows(output.detach().cpu(), positions)}

    drawn = _with_arguments(trial, readable.args, readable.kwargs, frozenset({readable.value}), arriving)
    output = tensors(map_tensors(trial.device.get, run_seeded(drawn).output))[0].detach()
    gradients = tensors(map_tensors(trial.device.get, list(drawn.target_gradients.values())))
    [gradient_of_output] = drawn.grad_outputs.values()
    verdict = judge_gradient_of_values(output, gradient_of_output, gradients[0], positions) if gradients else None
    if verdict is not None:
        yield output_result(GRADIENT_PLACE, verdict, gradients[0], None)


def _readable_call(trial: Trial) -> ReadableCall | None:
    """Return the call with inputs that show the mask; None where there is none that can be read."""
    subject = trial.subject
    info, arguments = op_info(subject.api), subject.arguments
    if info.readable is None or info.switch is None or subject.changed or not trial.draws_anew:
        return None
    p = _probability(trial, info.switch(arguments.args, arguments.kwargs))
    return info.readable(arguments.args, arguments.kwargs) if 0 < p < 1 else None


def _probability(trial: Trial, switch: Switch) -> float:
    args, kwargs = trial.subject.arguments.args, trial.subject.arguments.kwargs
    setting = args[switch.at] if len(args) > switch.at else kwargs.get(switch.name, switch.off)
    return abs(float(setting) - switch.off)


def _with_arguments(
    trial: Trial,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    differentiable: frozenset[str] = frozenset(),
    arriving: Callable[[Any], dict[str, torch.Tensor]] | None = None,
) -> Trial:
    subject = trial.subject
    arguments = replace(subject.arguments, args=args, kwargs=kwargs, differentiable=differentiable)
    changed = "inputs that show the mask"
    return Trial(replace(subject, arguments=arguments, grad_outputs=arriving, changed=changed), trial.device)
