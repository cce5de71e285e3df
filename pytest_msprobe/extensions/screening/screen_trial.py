"""One direction of a trial whose outputs are cleared by screening, before golden runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeAlias

import torch

from msprobe_hooks.dump.names import Direction, api_record
from msprobe_standards import Standard, measure
from pytest_msprobe.engine.framework_names import PYTORCH
from pytest_msprobe.engine.replay.calls.subject import TargetError
from pytest_msprobe.engine.replay.judging.cancellation import cancelled_gradients
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.extensions.screening.attention import Attention, attention_of
from pytest_msprobe.extensions.screening.config import ScreenedPass, is_result, is_screenable, screening
from pytest_msprobe.extensions.screening.convolution import Convolution, convolution_of
from pytest_msprobe.extensions.screening.embedding import TableRows, cleared_rows, rows_of
from pytest_msprobe.extensions.screening.matmul_structure import Structure, structure_of
from pytest_msprobe.extensions.screening.product import Product
from pytest_msprobe.extensions.screening.residuals import examine
from pytest_msprobe.extensions.screening.screen_attention import cleared_attention
from pytest_msprobe.extensions.screening.tile_sums import blocks
from pytest_msprobe.results.result import OutputResult
from pytest_msprobe.results.screened import ScreenedOutput
from pytest_msprobe.results.skip_reasons import Skip

Select = Callable[[Any], Standard]
Linear: TypeAlias = Structure | Convolution


def cleared(trial: Trial, direction: Direction, select: Select, setup: ReplayConfig) -> list[ScreenedPass]:
    """Return the verdicts on all outputs of one direction; none where one of them is left to the exact check.

    The target runs before golden here: what is a product by the shapes and dtypes of its arguments, no CPU rejects.
    A target that fails, or gives what is no result of this product, is left to the exact check as well.
    """
    structure = _structure(trial, setup)
    if structure is None:
        return []
    try:
        if trial.target.written or trial.randomness is not None:
            return []
        if isinstance(structure, Attention):
            found = cleared_attention(trial, direction, select, structure)
        elif isinstance(structure, TableRows):
            found = cleared_rows(trial, direction, select, structure)
        elif direction == "forward":
            found = _forward(trial, structure, select)
        else:
            found = _backward(trial, structure, select)
    except (Skip, TargetError):
        return []
    return [each for each in found if each is not None] if all(found) else []


def _structure(trial: Trial, setup: ReplayConfig) -> Linear | Attention | TableRows | None:
    """Return what a call is: products or attention of more operations than are screened from, or table rows."""
    subject = trial.subject
    if setup.screen_above is None or setup.measure_all or trial.elsewhere is not None:
        return None
    is_plain = subject.autocast is None and subject.target is subject.golden and not subject.changed
    if not is_plain or setup.framework.name != PYTORCH:
        return None
    asked = subject.operation, subject.arguments
    structure = structure_of(*asked) or convolution_of(*asked) or attention_of(*asked)
    if structure is None:
        return rows_of(*asked)
    return structure if structure.operations > setup.screen_above else None


def _forward(trial: Trial, structure: Linear, select: Select) -> list[ScreenedPass | None]:
    output = trial.target.output
    dtype = structure.dtype
    recorded = trial.subject.output_dtypes
    if not is_result(output, structure.shape, dtype) or recorded not in ((), (str(dtype),)):
        return [None]
    return [_screened(trial, "output.0", output, structure.forward, select)]


def _backward(trial: Trial, structure: Linear, select: Select) -> list[ScreenedPass | None]:
    arriving = list(trial.grad_outputs.values())
    gradients, dtype = trial.target_gradients, structure.dtype
    if (
        len(arriving) != 1
        or not all(is_result(each, structure.shape, dtype) for each in (arriving[0], trial.target.output))
        or not gradients.keys() <= structure.paths
    ):
        return [None]
    given = dict(trial.subject.arguments.tensors())
    found: dict[str, ScreenedPass | None] = {}
    for path in _last_reading_little(structure, gradients):
        gradient = gradients[path]
        if not is_result(gradient, tuple(given[path].shape), dtype):
            return [None]
        if structure.added is not None and path == structure.added[0]:
            found[path] = _summed(trial, path, gradient, structure, arriving[0], select)
        else:
            if isinstance(structure, Structure) and path == structure.larger.path:
                trial.release_input(path)
            products = _products_of(structure, path, arriving[0])
            found[path] = _screened(trial, f"grad.{path}", gradient, products, select)
        if found[path] is None:
            return [None]
    samples = {path: each.sample for path, each in found.items() if each is not None}
    # Where the greatest element is rounding alone, all are.
    return [None] if cancelled_gradients(samples, arriving) else [found[path] for path in gradients]


def _last_reading_little(structure: Linear, paths: Iterable[str]) -> list[str]:
    """Return paths with that of the larger factor at the end: its gradient does not read it, all others may."""
    last = structure.larger.path if isinstance(structure, Structure) else ""
    return sorted(paths, key=lambda path: path == last)


def _products_of(structure: Linear, path: str, arriving: torch.Tensor) -> Callable[[torch.Tensor], list[Product]]:
    return lambda gradient: structure.backward(path, gradient, arriving)


def _screened(
    trial: Trial,
    path: str,
    found: torch.Tensor,
    products: Callable[[torch.Tensor], list[Product]],
    select: Select,
) -> ScreenedPass | None:
    """Return the verdict on an output that is cleared; None for any other."""
    target = trial.device.get(found).detach()
    standard = select(target)
    if not is_screenable(standard):
        return None
    of = products(target)
    evidence = examine(of, trial.subject.seed)
    seen = screening(evidence, standard)
    if not seen.is_cleared or seen.verdict is None:
        return None
    kind, worst = max(evidence.residuals.items(), key=lambda item: item[1].share)
    record = api_record(trial.subject.key, "backward" if path.startswith("grad.") else "forward")
    screened_output = ScreenedOutput(
        record, path, worst.share**0.5, kind, len(evidence.target), evidence.numel, sum(each.operations for each in of)
    )
    verdict = replace(seen.verdict, reason=f"cleared by screening: {screened_output.in_words}")
    result = OutputResult(path, verdict, str(target.dtype), "", tuple(target.shape))
    return ScreenedPass(result, evidence.target, screened_output)


def _summed(
    trial: Trial, path: str, found: torch.Tensor, structure: Linear, arriving: torch.Tensor, select: Select
) -> ScreenedPass | None:
    """Return the verdict on the gradient of what is added, by all of its exact values; None unless it passes."""
    target = trial.device.get(found).detach()
    standard = select(target)
    if target.dim() != 1 or not is_screenable(standard):
        return None
    rows = structure.summed(arriving)
    golden = torch.zeros(rows.shape[1], dtype=torch.float64)
    for _, columns, block in blocks(rows, torch.float64):
        golden[columns] += block.sum(0)
    golden *= structure.beta
    if not golden.isfinite().all():
        return None
    metrics = measure(target, golden, only=standard.wanted, bounds=standard.bounds(target.dtype))
    verdict = standard.settled(metrics)
    if verdict is None or verdict.outcome != "pass":
        return None
    return ScreenedPass(
        OutputResult(f"grad.{path}", verdict, str(target.dtype), str(golden.dtype), tuple(target.shape)), golden
    )
