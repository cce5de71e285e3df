"""The gradients of a function that has its own backward, held against finite differences.

Where golden is the function itself, its gradients in raised precision come from the same backward: one that is wrong
agrees with itself. Differences of the forward in float64 do not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from msprobe_standards.verdict import Outcome, Verdict
from pytest_msprobe.engine.replay.calls.golden import golden_side
from pytest_msprobe.engine.replay.calls.side import Run, run_backward, run_forward
from pytest_msprobe.engine.replay.inputs.random_tensors import stream_seed
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.pytree import map_with_paths, tensors_with_paths
from pytest_msprobe.results.outcomes import describe_error
from pytest_msprobe.results.result import OutputResult

STANDARD = "finite_differences"

# Relative to the inputs. Three in a row that agree best are taken: large ones see curvature, small ones rounding.
_STEPS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
# As torch.autograd.gradcheck allows. A tanh that computes in float32 inside is off by up to 1.2e-4.
_RELATIVE = 1e-3
# Times what the best steps leave open. Right gradients of 11 functions, from exp to relu, were off by up to 1.1 of it.
_UNCERTAIN = 10.0
# Differences that leave more than this open say nothing. Smooth functions leave up to 2e-7, sin(50 x) and float32
# inside up to 9e-4, sin(1000 x) up to 0.3 and 16 bits inside more than 1.
_MOST_UNCERTAIN = 0.02
# What differs along one direction must do so along another one.
_DIRECTIONS = 2
# Jumps are searched for this far away, by halving: a smooth change shrinks with each half, to a millionth after 20 and
# to a sixteenth in the last 4; a jump stays.
_REACHES = (0.2, -0.2, 2.0, -2.0)
_HALVES = 20
_LAST_HALVES = 4
# Relative to the slope; the sums of float64 are good to far less.
_LEAST_JUMP = 1e-8
# Each input takes ten runs of the forward, so that more are moved together.
_MOST_INPUTS = 8
_MOST_ELEMENTS = 2**24  # a choice: 128 MiB of float64 for each copy of them

_Tensors = Mapping[str, torch.Tensor]


class _NotJudgedError(Exception):
    """Finite differences say nothing; the text is why."""


def judge_by_differences(trial: Trial) -> tuple[list[OutputResult], str]:
    """Return verdicts on the gradients of a trial whose golden function is the target, and why some have none.

    Along a random direction the gradient of an input must be the derivative that differences of the forward in float64
    give. Many inputs are judged together. The reasons name the inputs without a verdict; empty where each has one.
    """
    try:
        differences = _Differences(trial)
    except _NotJudgedError as reason:
        return [], str(reason)
    except Exception as error:
        return [], f"in float64 it raises {describe_error(error)}"
    results, unjudged = [], dict[str, list[str]]()
    for paths in differences.groups:
        try:
            results.append(differences.verdict(paths))
        except _NotJudgedError as reason:
            unjudged.setdefault(str(reason), []).append(_name(paths))
    return results, "; ".join(f"{reason} ({', '.join(names)})" for reason, names in unjudged.items())


def _name(paths: list[str]) -> str:
    return paths[0] if len(paths) == 1 else "all"


@dataclass(frozen=True, slots=True)
class _Comparison:
    """The derivative along a direction by the backward and by differences, and how far they may be apart."""

    along: float
    slope: float
    allowed: float

    @property
    def error(self) -> float:
        return abs(self.along - self.slope)

    @property
    def agrees(self) -> bool:
        return self.error <= self.allowed


class _Differences:
    """The forward of a trial in float64, weighted by the gradients that arrive: a number of its inputs."""

    def __init__(self, trial: Trial) -> None:
        self._trial, self._name = trial, trial.golden.own_backward
        subject = trial.subject
        self._side = golden_side(subject.operation, subject.arguments, torch.float64)
        self._arriving = {path: gradient.double() for path, gradient in trial.grad_outputs.items()}
        run = self._run({})
        self._leaves = {path: leaf.detach().clone() for path, leaf in run.leaves.items()}
        if any(tensor.is_complex() for tensor in self._leaves.values()):
            raise _NotJudgedError("it takes complex numbers")
        if sum(leaf.numel() for leaf in self._leaves.values()) > _MOST_ELEMENTS:
            raise _NotJudgedError("its inputs are too large")
        self._here = self._number(run)
        if self._here != self._number(self._run({})):
            raise _NotJudgedError("two runs of it differ")
        gradients = run_backward(run, self._arriving, self._side, record=subject.key)
        self._gradients = {path: gradient.double() for path, gradient in gradients.items() if gradient is not None}

    @property
    def groups(self) -> list[list[str]]:
        """The paths of the inputs that are judged together."""
        return [[path] for path in self._leaves] if len(self._leaves) <= _MOST_INPUTS else [list(self._leaves)]

    def verdict(self, paths: list[str]) -> OutputResult:
        """Return the verdict on the gradients of inputs. Raises _NotJudgedError where differences say nothing."""
        for draw in range(_DIRECTIONS):
            comparison = self._compared(paths, draw)
            if comparison.agrees:
                break
        else:
            directions = self._directions(paths, draw, moves_zeros=True)
            if any(self._jumps_within(directions, comparison.slope, reach) for reach in _REACHES):
                raise _NotJudgedError("its result jumps near these inputs, as that of a rounding does")
        shape = tuple(self._leaves[paths[0]].shape) if len(paths) == 1 else ()
        margin = comparison.error / comparison.allowed if comparison.allowed else 0.0
        reason = (
            f"the backward of {self._name} gives {comparison.along:.6g} along a random direction, finite differences "
            f"of the forward in float64 give {comparison.slope:.6g}; "
            "if it is meant to be another gradient, pass golden="
        )
        metrics, limits = {"slope_error": comparison.error}, {"slope_error": comparison.allowed}
        outcome: Outcome = "pass" if comparison.agrees else "fail"
        verdict = Verdict(outcome, STANDARD, "" if comparison.agrees else reason, metrics, limits, margin)
        return OutputResult(f"{STANDARD}.{_name(paths)}", verdict, "torch.float64", "", shape)

    def _compared(self, paths: list[str], draw: int) -> _Comparison:
        """Return the comparison along a direction, in which zeros stay where they are if there is a kink in them."""
        try:
            return self._compared_along(self._directions(paths, draw, moves_zeros=True))
        except _NotJudgedError:
            if all(self._leaves[path].all() or not self._leaves[path].any() for path in paths):
                raise
        return self._compared_along(self._directions(paths, draw, moves_zeros=False))

    def _compared_along(self, directions: _Tensors) -> _Comparison:
        products = [
            self._gradients[path] * direction for path, direction in directions.items() if path in self._gradients
        ]
        along = math.fsum(float(product.sum()) for product in products)
        size = math.sqrt(math.fsum(float(product.square().sum()) for product in products))
        ends = [(self._at(directions, step), self._at(directions, -step)) for step in _STEPS]
        slopes = [(above - below) / (2 * step) for step, (above, below) in zip(_STEPS, ends, strict=True)]
        if not all(map(math.isfinite, (along, *slopes))):
            raise _NotJudgedError("it is not finite near these inputs")
        apart, slope = min(
            (max(three) - min(three), three[1]) for three in zip(slopes, slopes[1:], slopes[2:], strict=False)
        )
        if size and not slope and not apart:
            raise _NotJudgedError("its result does not change with its inputs, as that of a rounding does not")
        scale = max(size, abs(slope))
        if apart > _MOST_UNCERTAIN * scale:
            raise _NotJudgedError("it is not smooth enough for finite differences")
        comparison = _Comparison(along, slope, _RELATIVE * scale + _UNCERTAIN * apart)
        # The slopes on both sides of the inputs, whose difference shrinks with the step but for a kink.
        bends = [abs(above + below - 2 * self._here) / step for step, (above, below) in zip(_STEPS, ends, strict=True)]
        if not comparison.agrees and min(bends) > _RELATIVE * scale:
            raise _NotJudgedError("it has a kink at these inputs")
        return comparison

    def _jumps_within(self, directions: _Tensors, slope: float, reach: float) -> bool:
        """Return whether halves of a way, of which the one that is less like the slope is kept, end at a jump."""
        sizes = []
        try:
            start, end = (0.0, self._here), (reach, self._at(directions, reach))
            for _ in range(_HALVES):
                step = (start[0] + end[0]) / 2
                middle = step, self._at(directions, step)
                halves = [(start, middle), (middle, end)]
                start, end = max(
                    halves, key=lambda half: abs(half[1][1] - half[0][1] - slope * (half[1][0] - half[0][0]))
                )
                sizes.append(abs(end[1] - start[1]))
        except _NotJudgedError:
            return False
        return sizes[-1] > max(sizes[-1 - _LAST_HALVES] / 2, _LEAST_JUMP * abs(slope))

    def _directions(self, paths: list[str], draw: int, *, moves_zeros: bool) -> _Tensors:
        return {path: self._direction(path, draw, moves_zeros) for path in paths}

    def _direction(self, path: str, draw: int, moves_zeros: bool) -> torch.Tensor:
        """Return a random direction in which each element moves by a share of itself, so that none changes its sign.

        Zeros stay, or move by a share of what the others are on average.
        """
        subject, sizes = self._trial.subject, self._leaves[path].abs()
        generator = torch.Generator().manual_seed(stream_seed(subject.seed, subject.key, f"direction.{draw}.{path}"))
        drawn = torch.randn(sizes.shape, generator=generator, dtype=torch.float64)
        if not sizes.any():
            return drawn
        return drawn * (torch.where(sizes > 0, sizes, sizes[sizes > 0].mean()) if moves_zeros else sizes)

    def _at(self, directions: _Tensors, step: float) -> float:
        """Return the number a step along the directions. Raises _NotJudgedError where the function raises there."""
        try:
            return self._number(
                self._run({path: self._leaves[path] + step * direction for path, direction in directions.items()})
            )
        except Exception as error:
            raise _NotJudgedError(f"in float64 it raises {describe_error(error)}") from error

    def _run(self, moved: _Tensors) -> Run:
        subject = self._trial.subject

        def placed(path: str, leaf: object) -> object:
            return moved.get(path, leaf)

        arguments = subject.arguments
        args, kwargs = (
            map_with_paths(placed, arguments.args, "args"),
            map_with_paths(placed, arguments.kwargs, "kwargs"),
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(subject.seed)
            return run_forward(
                subject.golden,
                replace(arguments, args=args, kwargs=kwargs),
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
