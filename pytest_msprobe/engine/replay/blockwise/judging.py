"""One direction of a trial judged with golden and baseline computed block by block.

Errors relate to golden's mean magnitude, which is known when all blocks are. The first walk takes the target's in its
place: results that pass clear of every limit, with a golden magnitude next to it, pass with the right one too. Others
are walked over again with golden's own, beside the baseline where the standard asks for one. The baseline's blocks are
results of the same dtype, whose elements sum the same products: that a library may order them otherwise for another
shape makes it no better or worse a measure of how much error is normal.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import torch

from msprobe_hooks.dump.names import Direction
from msprobe_standards import Standard, Verdict
from msprobe_standards.blocks import BlockMeasure, mean_magnitude
from msprobe_standards.judging import exact_pass
from msprobe_standards.metrics import Metrics, bit_equal
from msprobe_standards.sensitivity import ExcusedBySensitivity
from pytest_msprobe.engine.replay.blockwise.block_trial import BlockTrial, Tensors, blocks
from pytest_msprobe.engine.replay.blockwise.cut import Cut
from pytest_msprobe.engine.replay.blockwise.operations import cuts_of
from pytest_msprobe.engine.replay.blockwise.plan import Plan
from pytest_msprobe.engine.replay.cancellation import cancelled
from pytest_msprobe.engine.replay.trial import Trial
from pytest_msprobe.results.result import OutputResult

Select = Callable[[Any], Standard]

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

_AT_ONCE = 2**22

# Numbers of the first walk are right to this share where the magnitudes are, and pass below the margin.
_SAME_SCALE, _CLEAR_MARGIN = 1e-3, 0.99


@dataclass(frozen=True, slots=True)
class _Part:
    """An output to be judged: its path, the target's values, and where it is cut; None of a sum over the blocks."""

    path: str
    target: torch.Tensor
    dim: int | None
    standard: Standard

    def at(self, start: int) -> tuple[int, ...]:
        """Return the index in the output at which a block begins."""
        return tuple(start if dim == self.dim else 0 for dim in range(self.target.dim()))

    def block(self, values: torch.Tensor, start: int) -> torch.Tensor:
        """Return the target's values beside those of a block."""
        return self.target if self.dim is None else self.target.narrow(self.dim, start, values.shape[self.dim])

    def measure(self, scale: float) -> BlockMeasure:
        """Return what measures this output."""
        dtype = self.target.dtype
        return BlockMeasure(self.target.shape, dtype, self.standard.wanted, self.standard.bounds(dtype), scale)


@dataclass(slots=True)
class _Seen:
    """What is known of an output once all blocks were seen. ``is_equal``: bit by bit, and it was not measured."""

    measured: BlockMeasure
    of_baseline: BlockMeasure | None = None
    is_equal: bool = True
    golden_dtype: torch.dtype = torch.float32
    greatest: float = 0.0
    sums: list[torch.Tensor] = field(default_factory=list)


class _NotInBlocksError(Exception):
    """What blocks give does not say how the whole would be judged."""


@dataclass(frozen=True, slots=True)
class InBlocks:
    """The verdicts on all outputs of one direction.

    ``is_sure``: the whole has no more to tell. Failures are judged again where the whole fits into memory, for what is
    told of them.
    """

    results: list[OutputResult]
    is_sure: bool


def judged_in_blocks(
    trial: Trial, plan: Plan, direction: Direction, select: Select, let_in_baseline: Callable[[], None]
) -> InBlocks | None:
    """Return the verdicts on all outputs of one direction; None where only the whole tells.

    ``let_in_baseline`` asks for the memory of a whole baseline. Raises Skip and TargetError as the trial's runs do, and
    Skip where the memory is not there.
    """
    try:
        return _judged(trial, plan, direction, select, let_in_baseline)
    except _NotInBlocksError:
        return None


def _judged(
    trial: Trial, plan: Plan, direction: Direction, select: Select, let_in_baseline: Callable[[], None]
) -> InBlocks:
    subject = trial.subject
    if subject.autocast is not None or subject.target is not subject.golden or trial.randomness is not None:
        raise _NotInBlocksError
    if plan.cut not in cuts_of(subject.operation, subject.arguments):
        raise _NotInBlocksError
    # Golden comes first: what the CPU rejects, in the least block too, must not reach a device.
    if BlockTrial(trial, plan.cut, 0, 1, "forward").of_golden() is None:
        raise _NotInBlocksError
    parts = _of_forward(trial, plan.cut, select) if direction == "forward" else _of_backward(trial, plan.cut, select)
    guessed = {part.path: mean_magnitude(part.target) for part in parts}
    seen = _walked(trial, plan, direction, parts, guessed)
    verdicts = {part.path: _clear(part, seen[part.path], guessed[part.path]) for part in parts}
    open_parts = [part for part in parts if verdicts[part.path] is None]
    if open_parts:
        exact = {part.path: seen[part.path].measured.golden_scale for part in open_parts}
        again = _walked(trial, plan, direction, open_parts, exact, with_baseline=True)
        sums = [part for part in open_parts if part.dim is None and part.standard.needs_baseline]
        if sums:
            let_in_baseline()
            _add_whole_baseline(trial, direction, sums, again, exact)
        verdicts |= {part.path: _decided(part, again[part.path]) for part in open_parts}
    found = [(part, verdict) for part in parts if (verdict := verdicts[part.path]) is not None]
    results = [_result(part, verdict, seen[part.path]) for part, verdict in found]
    return InBlocks(results, all(verdict.outcome == "pass" for _, verdict in found))


def _of_forward(trial: Trial, cut: Cut, select: Select) -> list[_Part]:
    run, recorded = trial.target, trial.subject.output_dtypes
    output = run.output
    if run.written or not _is_result(output, cut.result) or recorded not in ((), (str(output.dtype),)):
        raise _NotInBlocksError
    target = trial.device.get(output).detach()
    return [_Part("output.0", target, None if cut.is_reduced else cut.dim, select(target))]


def _of_backward(trial: Trial, cut: Cut, select: Select) -> list[_Part]:
    arriving = list(trial.grad_outputs.values())
    if trial.target.written or len(arriving) != 1 or not _is_result(arriving[0], cut.result):
        raise _NotInBlocksError
    given, magnitude = dict(trial.subject.arguments.tensors()), functools.cache(lambda: _mean_of_all(arriving[0]))
    parts = []
    for path, gradient in trial.target_gradients.items():
        if not _is_result(gradient, tuple(given[path].shape)):
            raise _NotInBlocksError
        target = trial.device.get(gradient).detach()
        standard = select(target).for_gradients(magnitude)
        parts.append(_Part(f"grad.{path}", target, cut.inputs.get(path), standard))
    return parts


def _mean_of_all(gradient: torch.Tensor) -> float:
    """Return the mean magnitude of a gradient that arrives, without a float64 copy of all of it."""
    parts = torch.split(gradient.reshape(-1), _AT_ONCE)
    return math.fsum(part.double().abs_().sum().item() for part in parts) / gradient.numel()


def _is_result(value: Any, shape: tuple[int, ...]) -> TypeGuard[torch.Tensor]:
    is_dense = isinstance(value, torch.Tensor) and value.layout is torch.strided and value.dtype in _FLOATS
    return is_dense and tuple(value.shape) == shape


def _walked(
    trial: Trial,
    plan: Plan,
    direction: Direction,
    parts: Sequence[_Part],
    scales: Mapping[str, float],
    *,
    with_baseline: bool = False,
    unequal: frozenset[str] = frozenset(),
) -> dict[str, _Seen]:
    """Walk over all blocks. Results that are equal so far are not measured; those that cease to be are seen again."""
    seen = {part.path: _Seen(part.measure(scales[part.path])) for part in parts}
    for block in blocks(trial, plan, direction):
        golden = _present(block.of_golden(), parts)
        for part in parts:
            if not _add(seen[part.path], part, golden[part.path], block.start, is_equal=part.path not in unequal):
                again = unequal | {part.path}
                return _walked(trial, plan, direction, parts, scales, with_baseline=with_baseline, unequal=again)
        beside = [part for part in parts if with_baseline and part.standard.needs_baseline and part.dim is not None]
        if beside and (baseline := block.of_baseline()) is not None:
            for part in beside:
                _add_baseline(seen[part.path], part, baseline[part.path], golden[part.path], block.start, scales)
    for part in parts:
        if part.dim is None:
            _add_sum(seen[part.path], part)
    if direction == "backward":
        samples = {path: torch.tensor([found.greatest], dtype=found.golden_dtype) for path, found in seen.items()}
        if cancelled(samples, trial.grad_outputs.values()):
            raise _NotInBlocksError
    return seen


def _present(found: Tensors | None, parts: Sequence[_Part]) -> Tensors:
    if found is None or not found.keys() >= {part.path for part in parts}:
        raise _NotInBlocksError
    return found


def _add(seen: _Seen, part: _Part, golden: torch.Tensor, start: int, *, is_equal: bool) -> bool:
    """Add a block; tell whether it could be: not where those before it were equal and so not measured, and it is not.

    ``is_equal``: it is not known yet that the output differs somewhere.
    """
    seen.golden_dtype = golden.dtype
    if part.dim is None:
        seen.sums[:] = [golden.double() if not seen.sums else seen.sums[0].add_(golden)]
        return True
    target = part.block(golden, start)
    seen.greatest = max(seen.greatest, _greatest(golden))
    was_equal = seen.is_equal and is_equal and part.standard.exact_passes
    seen.is_equal = was_equal and bit_equal(target, golden)
    if was_equal and not seen.is_equal and start:
        return False
    if not seen.is_equal:
        seen.measured.add(part.at(start), target, golden)
    return True


def _greatest(golden: torch.Tensor) -> float:
    """Return the greatest magnitude, infinite where there is a NaN: no such gradient is rounding alone."""
    greatest = float(golden.abs().max()) if golden.numel() else 0.0
    return math.inf if math.isnan(greatest) else greatest


def _add_baseline(
    seen: _Seen,
    part: _Part,
    baseline: torch.Tensor,
    golden: torch.Tensor,
    start: int,
    scales: Mapping[str, float],
) -> None:
    if baseline.shape == golden.shape and baseline.dtype == part.target.dtype:
        seen.of_baseline = seen.of_baseline or part.measure(scales[part.path])
        seen.of_baseline.add(part.at(start), baseline, golden)


def _add_whole_baseline(
    trial: Trial, direction: Direction, parts: Sequence[_Part], seen: Mapping[str, _Seen], scales: Mapping[str, float]
) -> None:
    """Measure what the baseline has for sums over blocks: its own, each block's rounded, would err more than a sum."""
    if direction == "forward":
        baseline = {} if trial.baseline is None else {"output.0": trial.baseline.output}
    else:
        baseline = {f"grad.{path}": gradient for path, gradient in (trial.baseline_gradients or {}).items()}
    for part in parts:
        result = baseline.get(part.path)
        if result is not None:
            found = seen[part.path]
            _add_baseline(found, part, result.detach(), found.sums[0].to(found.golden_dtype), 0, scales)


def _add_sum(seen: _Seen, part: _Part) -> None:
    golden = seen.sums[0].to(seen.golden_dtype)
    seen.greatest = _greatest(golden)
    seen.is_equal = part.standard.exact_passes and bit_equal(part.target, golden)
    if not seen.is_equal:
        seen.measured.add(part.at(0), part.target, golden)


def _clear(part: _Part, seen: _Seen, guessed: float) -> Verdict | None:
    """Return the verdict that passes whatever the exact magnitude is, close to the guessed one; None for any other."""
    if seen.is_equal:
        return exact_pass(part.standard)
    scale = seen.measured.golden_scale
    verdict = part.standard.settled(_numbers(seen.measured))
    is_close = abs(guessed - scale) <= _SAME_SCALE * scale
    is_clear = verdict is not None and verdict.outcome == "pass" and verdict.margin <= _CLEAR_MARGIN
    return verdict if is_close and is_clear else None


def _decided(part: _Part, seen: _Seen) -> Verdict:
    standard, metrics = part.standard, _numbers(seen.measured)
    verdict = standard.settled(metrics)
    if verdict is not None and verdict.outcome == "pass":
        return verdict
    if isinstance(standard, ExcusedBySensitivity) or (standard.adopts_baseline and metrics["nonfinite_mismatch"]):
        raise _NotInBlocksError
    return verdict or standard.decide(metrics, None if seen.of_baseline is None else _numbers(seen.of_baseline))


def _numbers(measured: BlockMeasure) -> Metrics:
    if not measured.is_in_range:
        raise _NotInBlocksError
    return measured.metrics()


def _result(part: _Part, verdict: Verdict, seen: _Seen) -> OutputResult:
    target = part.target
    return OutputResult(part.path, verdict, str(target.dtype), str(seen.golden_dtype), tuple(target.shape))
