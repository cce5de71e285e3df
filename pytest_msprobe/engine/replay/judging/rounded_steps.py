"""Failures of running sums and products that the rounding of each step explains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from msprobe_hooks.dump.names import Direction
from msprobe_standards import Benchmark
from msprobe_standards.sensitivity import has_lost_bits
from pytest_msprobe.engine.replay.ops.op_info import op_info
from pytest_msprobe.engine.replay.ops.running_results import Steps
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.pytree import tensors_with_paths
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
