"""Judging the dropout mask inside attention by a call of the same form whose results show it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pytest_msprobe.engine.replay.judging.outputs import output_result
from pytest_msprobe.engine.replay.ops.op_info import op_info
from pytest_msprobe.engine.replay.random_apis.attention_dropout import WeightMask
from pytest_msprobe.engine.replay.random_apis.independence import judge_two_draws
from pytest_msprobe.engine.replay.random_apis.probability_switch import Switch
from pytest_msprobe.engine.replay.random_apis.properties import tensors
from pytest_msprobe.engine.replay.trials.rng import run_twice
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.pytree import map_tensors
from pytest_msprobe.results.result import OutputResult

#: The path of what is said of the mask.
PLACE = "dropout_mask"


def judge_inner_mask(trial: Trial) -> Iterator[OutputResult]:
    """Yield the verdict on the mask that a random call of attention draws inside; none where it cannot be read.

    Raises Skip and TargetError as the trial's runs do.
    """
    subject = trial.subject
    info, arguments = op_info(subject.api), subject.arguments
    if info.readable is None or info.switch is None or subject.changed or not trial.draws_anew:
        return
    switch, made = info.switch(arguments.args, arguments.kwargs), info.readable(arguments.args, arguments.kwargs)
    p = _probability(trial, switch)
    if made is None or not 0 < p < 1:
        return
    drawn = _with_arguments(trial, *made)
    weights = tensors(_with_arguments(trial, *switch.applied(*made)).golden.output)[0].detach()
    first, again = (tensors(map_tensors(trial.device.get, run.output)) for run in run_twice(drawn))
    yield output_result(PLACE, judge_two_draws(WeightMask(weights, p), first[:1], again[:1]), first[0], None)


def _probability(trial: Trial, switch: Switch) -> float:
    args, kwargs = trial.subject.arguments.args, trial.subject.arguments.kwargs
    given = args[switch.at] if len(args) > switch.at else kwargs.get(switch.name, switch.off)
    return abs(float(given) - switch.off)


def _with_arguments(trial: Trial, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Trial:
    subject = trial.subject
    arguments = replace(subject.arguments, args=args, kwargs=kwargs, differentiable=frozenset())
    changed = "inputs that show the mask"
    return Trial(replace(subject, arguments=arguments, grad_outputs=None, changed=changed), trial.device)
