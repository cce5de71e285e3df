"""The gradients of a function that has its own backward, held against finite differences.

Where golden is the function itself, its gradients in raised precision come from the same backward: one that is wrong
agrees with itself. Differences of the forward in float64 do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from msprobe_standards.verdict import Outcome, Verdict
from pytest_msprobe.engine.replay.calls.golden import golden_side
from pytest_msprobe.engine.replay.calls.side import Run, run_backward, run_forward
from pytest_msprobe.engine.replay.inputs.random_tensors import stream_seed
from pytest_msprobe.engine.replay.trials.trial import Trial, as_sequence
from pytest_msprobe.engine.values.pytree import map_with_paths, tensors_with_paths
from pytest_msprobe.results.outcomes import describe_error
from pytest_msprobe.results.result import OutputResult

STANDARD = "finite_differences"

# Relative to the inputs. Three in a row that agree best are taken: large ones see curvature, small ones rounding.
_STEPS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
# As torch.autograd.gradcheck allows, and what the best steps leave open.
_RELATIVE = 1e-3
_UNCERTAIN = 10.0
# Differences that leave more than this open say nothing: the function is not smooth here.
_MOST_UNCERTAIN = 0.02
# What differs along one direction must do so along another one.
_DIRECTIONS = 2
# Each input takes ten runs of the forward.
_MOST_INPUTS = 8
_MOST_ELEMENTS = 2**24


class NotJudgedError(Exception):
    """Finite differences say nothing of a function; the text is why."""


def own_backward(run: Run) -> str:
    """Return the name of a backward in a run's graph that is not one of torch's; empty where there is none."""
    outputs = tensors_with_paths(as_sequence(run.results))
    waiting: list[Any] = [tensor.grad_fn for _, tensor in outputs if tensor.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        # A custom operator's backward (torch.library.register_autograd) is such a function too.
        if isinstance(node, torch.autograd.function.BackwardCFunction) or type(node).__name__ == "CppFunction":
            return str(node.name()).removeprefix("GeneratedBackwardFor_").removesuffix("Backward")
        found = {each for each, _ in node.next_functions if each is not None} - seen
        seen |= found
        waiting += found
    return ""


def judge_by_differences(trial: Trial) -> Iterator[OutputResult]:
    """Yield a verdict on the gradient of each input of a trial whose golden function is the target.

    Along a random direction it must be the derivative that differences of the forward in float64 give. Many inputs are
    judged together. Raises NotJudgedError where differences say nothing.
    """
    try:
        yield from _Differences(trial).verdicts()
    except NotJudgedError:
        raise
    except Exception as error:
        raise NotJudgedError(f"in float64 it raises {describe_error(error)}") from error


class _Differences:
    """The forward of a trial in float64, weighted by the gradients that arrive: a number of its inputs."""

    def __init__(self, trial: Trial) -> None:
        self._trial, self._name = trial, own_backward(trial.golden)
        subject = trial.subject
        self._side = golden_side(subject.operation, subject.arguments, torch.float64)
        self._arriving = {path: gradient.double() for path, gradient in trial.grad_outputs.items()}

    def verdicts(self) -> Iterator[OutputResult]:
        run = self._run({})
        leaves = {path: leaf.detach().clone() for path, leaf in run.leaves.items()}
        if any(tensor.is_complex() for tensor in leaves.values()):
            raise NotJudgedError("it takes complex numbers")
        if sum(leaf.numel() for leaf in leaves.values()) > _MOST_ELEMENTS:
            raise NotJudgedError("its inputs are too large")
        if self._number(run) != self._number(self._run({})):
            raise NotJudgedError("two runs of it differ")
        gradients = run_backward(run, self._arriving, self._side, record=self._trial.subject.key)
        groups = [[path] for path in leaves] if len(leaves) <= _MOST_INPUTS else [list(leaves)]
        for paths in groups:
            chosen = {path: leaves[path] for path in paths}
            found = {path: gradients[path] for path in paths}
            yield self._verdict(chosen, {path: each for path, each in found.items() if each is not None})

    def _verdict(self, leaves: Mapping[str, torch.Tensor], gradients: Mapping[str, torch.Tensor]) -> OutputResult:
        for draw in range(_DIRECTIONS):
            along, slope, allowed = self._compared(leaves, gradients, draw)
            if abs(along - slope) <= allowed:
                break
        path = next(iter(leaves)) if len(leaves) == 1 else "all"
        shape = tuple(leaves[path].shape) if path in leaves else ()
        error = abs(along - slope)
        margin = error / allowed if allowed else 0.0
        reason = (
            f"the backward of {self._name} gives {along:.6g} along a random direction, finite differences of the "
            f"forward in float64 give {slope:.6g}; if it is meant to be another gradient, pass golden="
        )
        metrics, limits = {"slope_error": error}, {"slope_error": allowed}
        outcome: Outcome = "pass" if error <= allowed else "fail"
        verdict = Verdict(outcome, STANDARD, "" if outcome == "pass" else reason, metrics, limits, margin)
        return OutputResult(f"{STANDARD}.{path}", verdict, "torch.float64", "", shape)

    def _compared(
        self, leaves: Mapping[str, torch.Tensor], gradients: Mapping[str, torch.Tensor], draw: int
    ) -> tuple[float, float, float]:
        """Return the derivative along a direction by the backward and by differences, and how far they may be apart."""
        directions = {path: self._direction(path, leaf, draw) for path, leaf in leaves.items()}
        products = [gradient.double() * directions[path] for path, gradient in gradients.items()]
        along = math.fsum(float(each.sum()) for each in products)
        size = math.sqrt(math.fsum(float(each.square().sum()) for each in products))
        slopes = [self._slope(leaves, directions, step) for step in _STEPS]
        if not all(map(math.isfinite, (along, *slopes))):
            raise NotJudgedError("it is not finite near these inputs")
        apart, slope = min(
            (max(three) - min(three), three[1]) for three in zip(slopes, slopes[1:], slopes[2:], strict=False)
        )
        if size and not slope and not apart:
            raise NotJudgedError("its result does not change with its inputs, as that of a rounding does not")
        scale = max(size, abs(slope))
        if apart > _MOST_UNCERTAIN * scale:
            raise NotJudgedError("it is not smooth enough for finite differences")
        return along, slope, _RELATIVE * scale + _UNCERTAIN * apart

    def _direction(self, path: str, leaf: torch.Tensor, draw: int) -> torch.Tensor:
        """Return a random direction in which each element moves by a share of itself, so that none changes its sign."""
        subject = self._trial.subject
        generator = torch.Generator().manual_seed(stream_seed(subject.seed, subject.key, f"direction.{draw}.{path}"))
        return torch.randn(leaf.shape, generator=generator, dtype=torch.float64) * (leaf.abs() if leaf.any() else 1.0)

    def _slope(self, leaves: Mapping[str, torch.Tensor], directions: Mapping[str, torch.Tensor], step: float) -> float:
        """Return the central difference over a step along the directions."""
        above, below = (
            self._number(self._run({path: leaf + sign * step * directions[path] for path, leaf in leaves.items()}))
            for sign in (1, -1)
        )
        return (above - below) / (2 * step)

    def _run(self, moved: Mapping[str, torch.Tensor]) -> Run:
        subject = self._trial.subject

        def placed(path: str, leaf: object) -> object:
            return moved.get(path, leaf)

        given = subject.arguments
        args, kwargs = map_with_paths(placed, given.args, "args"), map_with_paths(placed, given.kwargs, "kwargs")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(subject.seed)
            return run_forward(
                subject.golden,
                replace(given, args=args, kwargs=kwargs),
                self._side,
                operation=subject.operation,
                record=subject.key,
                differentiate=True,
            )

    def _number(self, run: Run) -> float:
        outputs = dict(tensors_with_paths(run.results))
        return math.fsum(
            float((outputs[path].detach().double() * gradient).sum()) for path, gradient in self._arriving.items()
        )
