"""A call run on the device again, on fresh copies of its inputs, and what of its results is not the same bit by bit."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from msprobe_hooks.dump.names import Direction
from pytest_msprobe.engine.framework_names import PYTORCH
from pytest_msprobe.engine.replay.judging.run_outputs import of_target
from pytest_msprobe.engine.replay.random_apis.unverifiable import UndefinedProperty
from pytest_msprobe.engine.replay.trials.rng import draws_undeclared_randomness, run_seeded
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.pytree import tensors_with_paths
from pytest_msprobe.results.repeats import UnstableOutput

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

Results = dict[str, torch.Tensor]


@dataclass
class _Instability:
    """What was seen of one output: where it ever differed (a mask, None for everywhere), how often and by how much."""

    elements: int
    mask: torch.Tensor | None
    runs: int = 0
    largest: float = 0.0

    def output(self, path: str) -> UnstableOutput:
        unequal = self.elements if self.mask is None else int(self.mask.sum())
        return UnstableOutput(path, self.runs, unequal, self.elements, self.largest)


def unstable_outputs(trial: Trial, direction: Direction, times: int) -> tuple[UnstableOutput, ...]:
    """Run a judged trial's call until it has run so many times on the device, and return what differs from its first.

    What the call draws comes from the same seed each time. Raises Skip and TargetError as the trial's runs do.
    """
    first, again = target_results(trial, direction), Trial(trial.subject, trial.device)
    if draws_undeclared_randomness(again):
        first, again = target_results(again, direction), Trial(trial.subject, trial.device)
    seen: dict[str, _Instability] = {}
    for _ in range(times - 1):
        results = target_results(again, direction)
        for path in first.keys() | results.keys():
            _compare(seen, path, first.get(path), results.get(path))
        again = Trial(trial.subject, trial.device)
    return tuple(seen[path].output(path) for path in (*first, *(seen.keys() - first.keys())) if path in seen)


def nondeterminism_reason(trial: Trial, framework: str) -> str:
    """Return why a correct device may give a call another result each time it is asked; empty where it may not."""
    if isinstance(trial.randomness, UndefinedProperty):
        return "returns whatever was in memory"
    if trial.randomness is not None and framework != PYTORCH:
        return f"{framework} draws numbers by a generator of its own, which is not seeded"
    return ""


def target_results(trial: Trial, direction: Direction) -> Results:
    """Return what the device gives for one direction of a call, by path, running it where it has not run."""
    run_seeded(trial)
    return dict(tensors_with_paths(of_target(trial, direction)))


def _compare(seen: dict[str, _Instability], path: str, first: torch.Tensor | None, again: torch.Tensor | None) -> None:
    if first is None or again is None or first.shape != again.shape or first.dtype != again.dtype:
        elements = 0 if first is None else first.numel()
        unlike = seen.setdefault(path, _Instability(elements, None))
        unlike.mask, unlike.runs, unlike.largest = None, unlike.runs + 1, math.inf
        return
    mask = unequal_bits(first, again)
    if not mask.any():
        return
    unstable = seen.setdefault(path, _Instability(first.numel(), torch.zeros_like(mask)))
    unstable.runs += 1
    unstable.largest = max(unstable.largest, largest_difference(first[mask], again[mask]))
    if unstable.mask is not None:
        unstable.mask |= mask


def unequal_bits(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return which elements of two CPU tensors of one dtype and shape differ in a bit; NaN equals the same NaN."""
    a, b = (tensor.resolve_conj().resolve_neg() for tensor in (first, second))
    if a.dtype is torch.complex128:
        return (torch.view_as_real(a).view(torch.int64) != torch.view_as_real(b).view(torch.int64)).any(-1)
    bits = _BITS[a.element_size()]
    return a.view(bits) != b.view(bits)


def largest_difference(first: torch.Tensor, second: torch.Tensor) -> float:
    """Return the largest difference of elements that differ in a bit; of zeros of both signs it is 0."""
    wide = torch.complex128 if first.is_complex() else torch.float64
    a, b = first.to(wide), second.to(wide)
    difference = (a - b).abs()
    difference[(a == b) | (a.isnan() & b.isnan())] = 0.0
    return float(difference.nan_to_num(nan=math.inf, posinf=math.inf).max())
