"""Screening as a strategy of a check: one direction of a trial whose outputs are cleared before golden runs."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np
import torch

from msprobe_hooks.dump.names import Direction, api_record
from msprobe_standards import Standard, Verdict, measure
from msprobe_standards.blocks import mean_magnitude
from msprobe_standards.judging import exact_pass
from msprobe_standards.metrics import Metrics, bit_equal
from msprobe_standards.tensor_layouts import as_array
from msprobe_standards.verdict import is_rough
from pytest_msprobe.engine.framework_names import PYTORCH
from pytest_msprobe.engine.replay.calls.arguments import Arguments, TargetError
from pytest_msprobe.engine.replay.inputs import large_tensors
from pytest_msprobe.engine.replay.inputs.constraints.drawn import DrawnArguments
from pytest_msprobe.engine.replay.inputs.sparse_reads import embedding
from pytest_msprobe.engine.replay.judging.cancellation import cancelled_gradients
from pytest_msprobe.engine.replay.judging.directions import magnitude_of_arriving
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.pytree import map_with_paths
from pytest_msprobe.extensions.screening.attention_sketches import Attention, attention_of
from pytest_msprobe.extensions.screening.config import ScreenedPass, examine, is_result, is_screenable, screening
from pytest_msprobe.extensions.screening.convolution import Convolution, Structure, convolution_of, structure_of
from pytest_msprobe.extensions.screening.options import SCREENED, ScreenedOutput
from pytest_msprobe.extensions.screening.screen_attention import cleared_attention
from pytest_msprobe.extensions.screening.tile_sums import Product, blocks
from pytest_msprobe.results.outcomes import Skip
from pytest_msprobe.results.result import OutputResult

if TYPE_CHECKING:
    from pytest_msprobe.engine.replay.prepared_call import DirectionCheck


_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

# Sums, counts and greatest values, to which elements without error add nothing where golden is zero.
_UNCHANGED = frozenset({"max_abs_err", "nonfinite_mismatch", "scale", "max_scaled_error", "gain_error", "gain_z"})

# Means over all elements, by the power of the share that is not zero.
_MEANS = {"rms_scaled_error": 0.5, "tail_share": 1.0}

Select = Callable[[Any], Standard]
Linear: TypeAlias = Structure | Convolution


def judge_by_screening(check: DirectionCheck) -> list[OutputResult] | None:
    """Return the verdicts on a product that screening clears, whose inputs show what the recorded ones did."""
    prepared, direction = check.prepared, check.direction
    if check.recorded is not None or not prepared.may_be_screened:
        return None
    passed = cleared(prepared.trial, direction, partial(prepared.selection.select, direction), prepared.setup)
    if passed and prepared.has_informative_inputs(direction):
        screened = [output.screened for output in passed if output.screened is not None]
        if screened:
            check.extras[SCREENED] = msgspec.to_builtins(screened)
            check.properties[SCREENED] = "; ".join(map(str, screened))
        return [output.result for output in passed]
    prepared.trial.redraw_inputs()
    return None


def is_product(operation: str, arguments: Arguments) -> bool:
    """Return whether a call is a product, which no CPU rejects whose shapes and dtypes fit."""
    return structure_of(operation, arguments) is not None


@dataclass(frozen=True, slots=True)
class TableRows:
    """The distinct ``rows`` (count,) that a call reads of the ``table`` (rows, width) at a ``path``.

    ``arguments`` are those of the same call on a table of these rows alone.
    """

    path: str
    table: torch.Tensor
    rows: torch.Tensor
    arguments: Arguments

    @property
    def share(self) -> float:
        """Return how much of the table is read."""
        return len(self.rows) / len(self.table)


def rows_of(operation: str, arguments: Arguments) -> TableRows | None:
    """Return the rows of a large table that a call reads; None for any other call, and where they are many."""
    drawn = DrawnArguments(arguments.args, arguments.kwargs, 0)
    index, table = drawn.tensor(0, "input"), drawn.tensor(1, "weight")
    if operation != "embedding" or index is None or table is None or index.is_floating_point():
        return None
    if table.dtype not in _DTYPES or table.dim() != 2 or not table.is_contiguous() or drawn.get(6, "sparse"):
        return None
    if table.numel() < large_tensors.LARGE or embedding(drawn) is None:
        return None
    rows, places = torch.unique(index, return_inverse=True)
    padding = _place_of(drawn.get(2, "padding_idx"), rows, len(table))
    instead = {"input": places.to(index.dtype), "weight": table[rows.long()], "padding_idx": padding}
    names = {path: name for i, name in enumerate(instead) for path in (f"args.{i}", f"kwargs.{name}")}

    def of_rows(path: str, leaf: Any) -> Any:
        return instead[names[path]] if path in names else leaf

    args = map_with_paths(of_rows, arguments.args, "args")
    few = replace(arguments, args=args, kwargs=map_with_paths(of_rows, arguments.kwargs, "kwargs"))
    return TableRows("args.1" if len(args) > 1 else "kwargs.weight", table, rows.long(), few)


def _place_of(row: int | None, rows: torch.Tensor, count: int) -> int | None:
    """Return the place of a row of a table of so many among those that are read; None where it is not read."""
    places = [] if row is None else (rows == row % count).nonzero().flatten().tolist()
    return places[0] if places else None


def cleared_rows(
    trial: Trial, direction: Direction, select: Callable[[Any], Standard], read: TableRows
) -> list[ScreenedPass | None]:
    """Return the verdict on what a call gives for the rows that it reads; None where it is left to the whole check.

    Golden runs first. Raises Skip and TargetError as the trial's runs do.
    """
    few = _OfRows(trial, read)
    if few.golden.written or not isinstance(few.golden.output, torch.Tensor):
        return [None]
    return [_result(few, select) if direction == "forward" else _gradient(few, select)]


class _OfRows(Trial):
    """Golden of a call on a table of the rows that it ``read``, with no run of the target but the ``whole`` one."""

    def __init__(self, whole: Trial, read: TableRows) -> None:
        super().__init__(replace(whole.subject, arguments=read.arguments), whole.device)
        self.whole, self.read = whole, read

    @functools.cached_property
    def grad_outputs(self) -> Mapping[str, torch.Tensor]:
        """The gradient that arrives at the whole call."""
        return self.whole.grad_outputs


def _result(few: _OfRows, select: Callable[[Any], Standard]) -> ScreenedPass | None:
    golden, dtype, whole = few.golden.output.detach(), few.read.table.dtype, few.whole
    output, recorded = whole.target.output, few.subject.output_dtypes
    if whole.target.written or recorded not in ((), (str(dtype),)) or not is_result(output, tuple(golden.shape), dtype):
        return None
    target = whole.device.get(output).detach()
    verdict = _passed(target, golden, select(target))
    return None if verdict is None else _screened_pass("output.0", verdict, target, golden)


def _gradient(few: _OfRows, select: Callable[[Any], Standard]) -> ScreenedPass | None:
    read, whole = few.read, few.whole
    arriving, gradients = list(whole.grad_outputs.values()), whole.target_gradients
    golden, result = few.golden_gradients.get(read.path), gradients.get(read.path)
    if len(gradients) != 1 or golden is None or not is_result(result, tuple(read.table.shape), read.table.dtype):
        return None
    gradient = whole.device.get(result).detach()
    target = gradient[read.rows]
    # Where the greatest element is rounding alone, all are.
    if not _is_all_of(gradient, target) or cancelled_gradients({read.path: golden}, arriving):
        return None
    standard = select(gradient).for_gradients(lambda: magnitude_of_arriving(arriving))
    verdict = _passed(target, golden, standard, read.share, lambda: (few.baseline_gradients or {}).get(read.path))
    return None if verdict is None else _screened_pass(f"grad.{read.path}", verdict, gradient, golden)


def _is_all_of(gradient: torch.Tensor, rows: torch.Tensor) -> bool:
    """Return whether there is nothing in a gradient but in some of its rows; -0.0 counts as something."""
    return gradient.is_contiguous() and _words(gradient) == _words(rows)


def _words(values: torch.Tensor) -> int:
    """Return how many words of a contiguous tensor, of up to 8 bytes that are all of a row, have a bit that is set."""
    size = math.gcd(8, values.shape[1] * values.element_size())
    bits = as_array(values.view(torch.uint8)).view(f"u{size}")
    return int(np.count_nonzero(bits))


def _passed(
    target: torch.Tensor,
    golden: torch.Tensor,
    standard: Standard,
    share: float = 1.0,
    baseline: Callable[[], torch.Tensor | None] = lambda: None,
) -> Verdict | None:
    """Return the verdict on a tensor that is zero but for this ``share`` of it, if it passes against golden.

    ``baseline`` gives the baseline's part, where the verdict depends on it. None is left to the whole check.
    """
    if standard.exact_passes and bit_equal(target, golden):
        return exact_pass(standard)
    if not standard.wanted <= _UNCHANGED | _MEANS.keys() or not golden.isfinite().all():
        return None
    bounds, scale = standard.bounds(target.dtype), mean_magnitude(golden)

    def of_whole(part: torch.Tensor) -> Metrics:
        metrics = measure(part, golden, only=standard.wanted, bounds=bounds, scale=scale)
        means = {name: metrics[name] * share**power for name, power in _MEANS.items() if name in metrics}
        return Metrics({**metrics, **means}, metrics.dtype, round(metrics.numel / share))

    metrics = of_whole(target)
    verdict = standard.settled(metrics)
    if (verdict is None or is_rough(verdict)) and (expected := baseline()) is not None:
        verdict = standard.decide(metrics, standard.credible(of_whole(expected)))
    return verdict if verdict is not None and verdict.outcome == "pass" else None


def _screened_pass(path: str, verdict: Verdict, target: torch.Tensor, golden: torch.Tensor) -> ScreenedPass:
    return ScreenedPass(OutputResult(path, verdict, str(target.dtype), str(golden.dtype), tuple(target.shape)), golden)


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
            passes = cleared_attention(trial, direction, select, structure)
        elif isinstance(structure, TableRows):
            passes = cleared_rows(trial, direction, select, structure)
        elif direction == "forward":
            passes = _forward(trial, structure, select)
        else:
            passes = _backward(trial, structure, select)
    except (Skip, TargetError):
        return []
    return [passed for passed in passes if passed is not None] if all(passes) else []


def _structure(trial: Trial, setup: ReplayConfig) -> Linear | Attention | TableRows | None:
    """Return what a call is: products or attention of more operations than are screened from, or table rows."""
    subject = trial.subject
    if setup.screen_above is None or setup.measure_all or trial.elsewhere is not None:
        return None
    is_plain = subject.autocast is None and subject.target is subject.golden and not subject.changed
    if not is_plain or setup.framework.name != PYTORCH:
        return None
    call = subject.operation, subject.arguments
    structure = structure_of(*call) or convolution_of(*call) or attention_of(*call)
    if structure is None:
        return rows_of(*call)
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
        or not all(is_result(result, structure.shape, dtype) for result in (arriving[0], trial.target.output))
        or not gradients.keys() <= structure.paths
    ):
        return [None]
    inputs = dict(trial.subject.arguments.tensors())
    passes: dict[str, ScreenedPass | None] = {}
    for path in _last_reading_little(structure, gradients):
        gradient = gradients[path]
        if not is_result(gradient, tuple(inputs[path].shape), dtype):
            return [None]
        if structure.added is not None and path == structure.added[0]:
            passes[path] = _summed(trial, path, gradient, structure, arriving[0], select)
        else:
            if isinstance(structure, Structure) and path == structure.larger.path:
                trial.release_input(path)
            products = _products_of(structure, path, arriving[0])
            passes[path] = _screened(trial, f"grad.{path}", gradient, products, select)
        if passes[path] is None:
            return [None]
    samples = {path: passed.sample for path, passed in passes.items() if passed is not None}
    # Where the greatest element is rounding alone, all are.
    return [None] if cancelled_gradients(samples, arriving) else [passes[path] for path in gradients]


def _last_reading_little(structure: Linear, paths: Iterable[str]) -> list[str]:
    """Return paths with that of the larger factor at the end: its gradient does not read it, all others may."""
    last = structure.larger.path if isinstance(structure, Structure) else ""
    return sorted(paths, key=lambda path: path == last)


def _products_of(structure: Linear, path: str, arriving: torch.Tensor) -> Callable[[torch.Tensor], list[Product]]:
    return lambda gradient: structure.backward(path, gradient, arriving)


def _screened(
    trial: Trial,
    path: str,
    output: torch.Tensor,
    products: Callable[[torch.Tensor], list[Product]],
    select: Select,
) -> ScreenedPass | None:
    """Return the verdict on an output that is cleared; None for any other."""
    target = trial.device.get(output).detach()
    standard = select(target)
    if not is_screenable(standard):
        return None
    of = products(target)
    evidence = examine(of, trial.subject.seed)
    screened = screening(evidence, standard)
    if not screened.is_cleared or screened.verdict is None:
        return None
    kind, worst = max(evidence.residuals.items(), key=lambda item: item[1].share)
    record = api_record(trial.subject.key, "backward" if path.startswith("grad.") else "forward")
    screened_output = ScreenedOutput(
        record,
        path,
        worst.share**0.5,
        kind,
        len(evidence.target),
        evidence.numel,
        sum(product.operations for product in of),
    )
    verdict = replace(screened.verdict, reason=f"cleared by screening: {screened_output.in_words}")
    result = OutputResult(path, verdict, str(target.dtype), "", tuple(target.shape))
    return ScreenedPass(result, evidence.target, screened_output)


def _summed(
    trial: Trial, path: str, gradient: torch.Tensor, structure: Linear, arriving: torch.Tensor, select: Select
) -> ScreenedPass | None:
    """Return the verdict on the gradient of what is added, by all of its exact values; None unless it passes."""
    target = trial.device.get(gradient).detach()
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
