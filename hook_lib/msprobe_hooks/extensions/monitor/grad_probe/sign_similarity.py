"""How much the gradients of two runs point the same way: the share of elements that have the same sign."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.grad_probe.reader import ProbedRank, open_rank
from msprobe_hooks.messages import counted

_log = logging.getLogger("msprobe_hooks")


@dataclass(frozen=True, slots=True, eq=False)
class SignSimilarity:
    """The sign similarities of one rank of two runs, at the steps that both have.

    ``shares`` is float64 of shape (parameters, steps): the number of elements whose sign maps are equal over the number
    of elements, 0 for a gradient without elements, as msprobe defines it; NaN where neither run had a gradient.
    ``summary``, of shape (steps,), is the same over all elements of a step.
    """

    steps: tuple[int, ...]
    parameters: tuple[str, ...]
    shares: NDArray[np.float64]
    summary: NDArray[np.float64]


def sign_similarity(run_a: str | Path, run_b: str | Path) -> SignSimilarity:
    """Compare the sign maps in the folders of one rank of two runs (``<dump_path>/rank<N>``).

    Parameters come in the order of the first run. Raises MonitorError where there is nothing to compare: no step in
    common, a gradient that only one run has, shapes that differ, files that are not sign maps.
    """
    a, b = open_rank(run_a), open_rank(run_b)
    steps = _common_steps(a, b)
    shares: dict[str, dict[int, float]] = {}
    summary = []
    for step in steps:
        counts = {name: _equal(a, b, step, name) for name in _common_parameters(a, b, step)}
        for name, (equal, total) in counts.items():
            shares.setdefault(name, {})[step] = _share(equal, total)
        summary.append(_share(*(sum(column) for column in zip(*counts.values(), strict=True))) if counts else math.nan)
    table = np.array([[of.get(step, math.nan) for step in steps] for of in shares.values()], dtype=np.float64)
    return SignSimilarity(steps, tuple(shares), table.reshape(len(shares), len(steps)), np.array(summary))


def _common_steps(a: ProbedRank, b: ProbedRank) -> tuple[int, ...]:
    for rank in (a, b):
        if rank.cut:
            _log.warning("%s: incomplete steps left out, as they have no summary: %s", rank.folder, rank.cut)
    steps = tuple(sorted({*a.steps} & {*b.steps}))
    if not steps:
        have = "; ".join(f"{rank.folder} has {_range(rank.steps)}" for rank in (a, b))
        raise MonitorError(f"no step is in both runs: {have}; record them with the same configuration")
    alone = len(a.steps) + len(b.steps) - 2 * len(steps)
    if alone:
        _log.warning("%s left out, as in only one of %s and %s", counted(alone, "step"), a.folder, b.folder)
    return steps


def _range(steps: tuple[int, ...]) -> str:
    return f"{counted(len(steps), 'step')} from {steps[0]} to {steps[-1]}" if steps else "no complete step"


def _common_parameters(a: ProbedRank, b: ProbedRank, step: int) -> list[str]:
    names = a.parameters(step)
    lonely = {*names} ^ {*b.parameters(step)}
    if lonely:
        one = min(lonely)
        has, lacks = (a, b) if one in names else (b, a)
        raise MonitorError(
            f"{lacks.folder}: has no gradient of {one} at step {step}, but {has.folder} has; "
            "record both runs with the same model and configuration"
        )
    return names


def _equal(a: ProbedRank, b: ProbedRank, step: int, parameter: str) -> tuple[int, int]:
    ours, theirs = a.signs(step, parameter), b.signs(step, parameter)
    if ours.shape != theirs.shape:
        raise MonitorError(
            f"{parameter} at step {step}: shape {ours.shape} in {a.folder}, {theirs.shape} in {b.folder}; "
            "record both runs with the same model and parallel layout"
        )
    return int(np.count_nonzero(ours == theirs)), ours.size


def _share(equal: int, total: int) -> float:
    return equal / total if total else 0.0
