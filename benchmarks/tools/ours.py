"""This project as a tool: the policy `default`, on the inputs themselves and on inputs drawn from their statistics."""

from __future__ import annotations

import functools
from dataclasses import replace

import torch

from benchmarks.tools.cases import Case
from benchmarks.tools.tool import Answer, Tool
from msprobe_hooks.dump.schema import TensorElement
from msprobe_standards import Policy
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.torch_framework import TorchFramework

_ANSWERS: dict[str, Answer] = {"fail": "wrong", "warn": "warning", "pass": "right", "skip": "-"}
_SEVERITY: tuple[Answer, ...] = ("wrong", "warning", "right", "-")


@functools.cache
def _policy() -> Policy:
    return Policy.load("default")


def _config(case: Case) -> ReplayConfig:
    return ReplayConfig(case.device(), _policy(), TorchFramework())


def _by_tensors(case: Case) -> Answer:
    tensors = dict(case.trial.subject.arguments.tensors())
    if case.result.gradients:
        tensors |= {f"grad.{path}": gradient for path, gradient in case.trial.grad_outputs.items()}

    def give(element: TensorElement, path: str) -> torch.Tensor:
        return tensors[path]

    return _answer(case, Replay(case.recorded.call, _config(case), give))


def _by_statistics(case: Case) -> Answer:
    return _answer(case, Replay(case.recorded.call, replace(_config(case), real_data=False)))


def _answer(case: Case, replay: Replay) -> Answer:
    outcomes = [replay.forward().verdict.outcome]
    if case.recorded.call.backward is not None:
        outcomes.append(replay.backward().verdict.outcome)
    return min((_ANSWERS[outcome] for outcome in outcomes), key=_SEVERITY.index)


_GIVEN = "the device, on which it runs the call, a random or failing one several times"
TOOLS = (
    Tool("pytest-msprobe, tensors", f"the inputs; {_GIVEN}", _by_tensors),
    Tool("pytest-msprobe, statistics", f"range, mean and norm of the inputs; {_GIVEN}", _by_statistics),
)
