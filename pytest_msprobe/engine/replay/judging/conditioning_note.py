"""A note on failing records: how much the call amplifies the rounding of its inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch

from msprobe_hooks.dump.names import Direction
from msprobe_standards import amplification
from pytest_msprobe.engine.replay.judging.run_outputs import moved_results, produced
from pytest_msprobe.engine.replay.trials.input_perturbation import input_unit_roundoff
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.pytree import tensors_with_paths
from pytest_msprobe.results.result import DirectionResult, OutputResult

#: Under this name a failing result holds how many times each wrong output amplifies its inputs' rounding, by path.
AMPLIFICATION = "amplification"

# Two of the digits that inputs hold are lost then: docs/standards-reference.md, "Where the constants come from".
_ILL_CONDITIONED = 100.0
# Below, amplification explains nothing that the standards do not allow anyway.
_WORTH_SAYING = 10.0

# An explanation may not take a slow item beyond its time limit.
_LONGEST_EXPLAINED = 5.0


def add_conditioning_note(result: DirectionResult, trial: Trial, direction: Direction) -> DirectionResult:
    """Return a failing result with how much the call amplifies its inputs' rounding, for each wrong output.

    It costs two golden runs, unless the verdict has asked for them already, and nothing where no input is rounded or
    where checking the record took long. The verdict stays as it is; all does where golden cannot be moved.
    """
    unit = input_unit_roundoff(trial.subject.arguments)
    wrong = {output.path for output in result.outputs if output.verdict.outcome == "fail"}
    if not wrong or not unit or trial.randomness is not None or result.seconds > _LONGEST_EXPLAINED:
        return result
    factors = {path: factor for path, factor in _factors(trial, direction, unit) if path in wrong}
    outputs = tuple(_with_note(output, factors.get(output.path), unit) for output in result.outputs)
    return replace(result, outputs=outputs).with_extra(AMPLIFICATION, factors) if factors else result


def _factors(trial: Trial, direction: Direction, unit: float) -> Iterator[tuple[str, float]]:
    golden = produced(trial, direction, ("golden",)).get("golden")
    draws = [dict(tensors_with_paths(draw)) for draw in moved_results(trial, direction)]
    for path, tensor in tensors_with_paths(golden if draws else None):
        moved = [draw[path] for draw in draws if path in draw]
        if len(moved) == len(draws) and _are_comparable(tensor, moved):
            factor = amplification(tensor, moved, unit)
            if math.isfinite(factor):
                yield path, factor


def _are_comparable(golden: torch.Tensor, moved: list[torch.Tensor]) -> bool:
    computed = golden.is_floating_point() or golden.is_complex()
    return computed and bool(golden.numel()) and all(each.shape == golden.shape for each in moved)


def _with_note(output: OutputResult, factor: float | None, unit: float) -> OutputResult:
    if factor is None or factor < _WORTH_SAYING:
        return output
    text = (
        f"the call amplifies its inputs' rounding {_rounded(factor)} times, so relative errors of {factor * unit:.1g} "
        f"are to be expected{': it is ill-conditioned' if factor >= _ILL_CONDITIONED else ''}"
    )
    return replace(output, difference="\n".join(filter(None, [output.difference, text])))


def _rounded(factor: float) -> str:
    """Return two digits of a factor, whose draws scatter more than a third one would say."""
    if factor < _ILL_CONDITIONED:
        return f"{factor:.2g}"
    mantissa, exponent = f"{factor:.0e}".split("e")
    return f"{mantissa}e{int(exponent)}"
