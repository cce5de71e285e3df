"""Judging of large calls in blocks, and as a whole where blocks do not decide, with memory granted for it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch

from msprobe_hooks.dump.names import Direction
from msprobe_standards import Standard, Verdict
from msprobe_standards.blocks import BlockMeasure, mean_magnitude
from msprobe_standards.exemption import credibly_decided
from msprobe_standards.judging import exact_pass
from msprobe_standards.metrics import Metrics
from msprobe_standards.sensitivity import ExcusedBySensitivity
from pytest_msprobe.devices.math_modes import ReducedPrecision, reduced_precision
from pytest_msprobe.engine.framework_names import PYTORCH
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.calls.mutated_arguments import require_one_place_each
from pytest_msprobe.engine.replay.judging.cancellation import cancelled_gradients
from pytest_msprobe.engine.replay.judging.run_outputs import memory_of
from pytest_msprobe.engine.replay.ops.cuts import Cut
from pytest_msprobe.engine.replay.partition import Plan, cuts_of, plan_of_call
from pytest_msprobe.engine.replay.streamed_output import Part, ScaleOf, StreamedOutput
from pytest_msprobe.engine.replay.trials.block_trial import BlockTrial, Tensors, blocks
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.replay.trials.memory_budget import admit_whole, recorded_bytes
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.system_memory import free_bytes
from pytest_msprobe.results.outcomes import Skip
from pytest_msprobe.results.result import OutputResult

Select = Callable[[Any], Standard]

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

# Elements raised to float64 at once: 32 MiB. A choice that bounds memory alone: measured on 2 cores with 16 M elements,
# parts of 2**16 take a sixth of the time.
_AT_ONCE = 2**22

# Numbers of the first walk are right to this share where the magnitudes are, and pass below the margin, which leaves
# ten times as much to the limit.
_SAME_SCALE, _CLEAR_MARGIN = 1e-3, 0.99


class _NotInBlocksError(Exception):
    """Blocks do not show how the whole would be judged."""


@dataclass(frozen=True, slots=True)
class InBlocks:
    """The verdicts on all outputs of one direction.

    ``is_sure``: the whole would show no more. Failures are judged again where the whole fits into memory, for their
    reports.
    """

    results: list[OutputResult]
    is_sure: bool


def judged_in_blocks(
    trial: Trial, plan: Plan, direction: Direction, select: Select, let_in_baseline: Callable[[], None]
) -> InBlocks | None:
    """Return the verdicts on all outputs of one direction; None where only the whole shows it.

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
    if subject.target is not subject.golden or trial.randomness is not None:
        raise _NotInBlocksError
    if plan.cut not in cuts_of(subject.operation, subject.arguments):
        raise _NotInBlocksError
    # Golden comes first: what the CPU rejects, in the least block too, must not reach a device.
    if BlockTrial(trial, plan.cut, 0, 1, "forward").of_golden() is None:
        raise _NotInBlocksError
    parts = _of_forward(trial, plan.cut, select) if direction == "forward" else _of_backward(trial, plan.cut, select)
    targets = {part.path: part.target for part in parts}
    # Of outputs that equal golden no one asks for it.
    guessed = functools.cache(lambda path: mean_magnitude(targets[path]))
    streamed = _walked(trial, plan, direction, parts, guessed)
    verdicts = {part.path: _clear(part, streamed[part.path], guessed) for part in parts}
    open_parts = [part for part in parts if verdicts[part.path] is None]
    if open_parts:
        exact = {part.path: streamed[part.path].measured.golden_scale for part in open_parts}.__getitem__
        cut = [part for part in open_parts if part.dim is not None]
        again = streamed | (_walked(trial, plan, direction, cut, exact, with_baseline=True) if cut else {})
        sums = [part for part in open_parts if part.dim is None and part.standard.needs_baseline]
        if sums:
            let_in_baseline()
            _add_whole_baseline(trial, direction, sums, again)
        verdicts |= {part.path: _decided(part, again[part.path]) for part in open_parts}
    judged = [(part, verdict) for part in parts if (verdict := verdicts[part.path]) is not None]
    results = [_result(part, verdict, streamed[part.path]) for part, verdict in judged]
    return InBlocks(results, all(verdict.outcome == "pass" for _, verdict in judged))


def _of_forward(trial: Trial, cut: Cut, select: Select) -> list[Part]:
    run, recorded = trial.target, trial.subject.output_dtypes
    output = run.output
    if not _is_result(output, cut.result) or recorded not in ((), (str(output.dtype),)):
        raise _NotInBlocksError
    results = {"output.0": (output, None if cut.is_reduced else cut.dim)}
    results |= {f"changed.{path}": (run.arguments[path], cut.inputs[path]) for path in _judged_memory(trial, cut)}
    parts = []
    for path, (result, dim) in results.items():
        target = trial.device.get(result).detach()
        parts.append(Part(path, target, dim, select(target)))
    return parts


def _judged_memory(trial: Trial, cut: Cut) -> tuple[str, ...]:
    """Return the arguments that a call has written to and not returned.

    Raises where it is not what a block writes to, or where there is something in between that nothing may write to.
    """
    require_one_place_each(trial.target, trial.subject.arguments)
    memory = memory_of(trial, trial.target, trial.target)
    if {*trial.target.written} != {*cut.written} or memory.surrounded or memory.storages:
        raise _NotInBlocksError
    return memory.own


def _of_backward(trial: Trial, cut: Cut, select: Select) -> list[Part]:
    arriving = list(trial.grad_outputs.values())
    _judged_memory(trial, cut)
    if len(arriving) != 1 or not _is_result(arriving[0], cut.result):
        raise _NotInBlocksError
    inputs, magnitude = dict(trial.subject.arguments.tensors()), functools.cache(lambda: _mean_of_all(arriving[0]))
    parts = []
    for path, gradient in trial.target_gradients.items():
        if not _is_result(gradient, tuple(inputs[path].shape)):
            raise _NotInBlocksError
        target = trial.device.get(gradient).detach()
        standard = select(target).for_gradients(magnitude)
        parts.append(Part(f"grad.{path}", target, cut.inputs.get(path), standard))
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
    parts: Sequence[Part],
    scale_of: ScaleOf,
    *,
    with_baseline: bool = False,
    unequal: frozenset[str] = frozenset(),
) -> dict[str, StreamedOutput]:
    """Walk over all blocks. Results that are equal so far are not measured; those that cease to be are seen again."""
    streamed = {part.path: StreamedOutput(part, scale_of) for part in parts}
    against_baseline = [
        part for part in parts if with_baseline and part.standard.needs_baseline and part.dim is not None
    ]
    for block in blocks(trial, plan, direction):
        differing = _add(block, parts, streamed, unequal, against_baseline)
        if differing is not None:
            # Its runs would stay while all blocks are seen again.
            del block
            again = unequal | {differing}
            return _walked(trial, plan, direction, parts, scale_of, with_baseline=with_baseline, unequal=again)
    for part in parts:
        if part.dim is None:
            streamed[part.path].add_sum()
    if direction == "backward":
        samples = {
            path: torch.tensor([output.greatest], dtype=output.golden_dtype) for path, output in streamed.items()
        }
        if cancelled_gradients(samples, trial.grad_outputs.values()):
            raise _NotInBlocksError
    return streamed


def _add(
    block: BlockTrial,
    parts: Sequence[Part],
    streamed: Mapping[str, StreamedOutput],
    unequal: frozenset[str],
    against_baseline: Sequence[Part],
) -> str | None:
    """Add a block, and what the baseline has of it for some parts, none of which stays.

    Returns the path of an output that was equal and not measured so far, and is not equal here.
    """
    golden = _present(block.of_golden(), parts)
    for part in parts:
        if not streamed[part.path].add(golden[part.path], block.start, is_equal=part.path not in unequal):
            return part.path
    if against_baseline and (baseline := block.of_baseline()) is not None:
        for part in against_baseline:
            streamed[part.path].add_baseline(baseline[part.path], golden[part.path], block.start)
    return None


def _present(tensors: Tensors | None, parts: Sequence[Part]) -> Tensors:
    if tensors is None or not tensors.keys() >= {part.path for part in parts}:
        raise _NotInBlocksError
    return tensors


def _add_whole_baseline(
    trial: Trial, direction: Direction, parts: Sequence[Part], streamed: Mapping[str, StreamedOutput]
) -> None:
    """Measure what the baseline has for sums over blocks: its own, each block's rounded, would err more than a sum."""
    if direction == "forward":
        baseline = {} if trial.baseline is None else {"output.0": trial.baseline.output}
    else:
        baseline = {f"grad.{path}": gradient for path, gradient in (trial.baseline_gradients or {}).items()}
    for part in parts:
        result = baseline.get(part.path)
        if result is not None:
            streamed[part.path].add_baseline(result.detach(), streamed[part.path].sum, 0)


def _clear(part: Part, streamed: StreamedOutput, guessed: ScaleOf) -> Verdict | None:
    """Return the verdict that passes whatever the exact magnitude is, close to the guessed one; None for any other."""
    if streamed.is_equal:
        return exact_pass(part.standard)
    scale = streamed.measured.golden_scale
    verdict = part.standard.settled(_numbers(streamed.measured))
    is_close = part.dim is None or abs(guessed(part.path) - scale) <= _SAME_SCALE * scale
    is_clear = verdict is not None and verdict.outcome == "pass" and verdict.margin <= _CLEAR_MARGIN
    return verdict if is_close and is_clear else None


def _decided(part: Part, streamed: StreamedOutput) -> Verdict:
    standard, metrics = part.standard, _numbers(streamed.measured)
    verdict = standard.settled(metrics)
    if verdict is not None and verdict.outcome == "pass":
        return verdict
    if isinstance(standard, ExcusedBySensitivity) or (standard.adopts_baseline and metrics["nonfinite_mismatch"]):
        raise _NotInBlocksError
    if verdict is not None or streamed.of_baseline is None:
        return verdict or standard.decide(metrics, None)
    return credibly_decided(standard, metrics, _numbers(streamed.of_baseline), _unknown_roundings)


def _unknown_roundings() -> Sequence[Metrics]:
    """Raise what has the whole judged: how far roundings move golden is not known of blocks."""
    raise _NotInBlocksError


def _numbers(measured: BlockMeasure) -> Metrics:
    if not measured.is_in_range:
        raise _NotInBlocksError
    return measured.metrics()


def _result(part: Part, verdict: Verdict, streamed: StreamedOutput) -> OutputResult:
    target = part.target
    return OutputResult(part.path, verdict, str(target.dtype), str(streamed.golden_dtype), tuple(target.shape))


class LargeCall:
    """Computation of golden of one call: in blocks where ``plan`` says how, else as a whole.

    ``is_whole``: that it is not to be cut, since more is asked of golden than verdicts.
    """

    def __init__(self, call: Call, setup: ReplayConfig, *, is_whole: bool) -> None:
        self.plan: Plan | None = None
        self._call, self._setup = call, setup
        is_elsewhere = setup.baseline is not None or setup.framework.name != PYTORCH
        self._is_whole = is_whole or setup.measure_all or setup.raised_above is None or is_elsewhere

    def working_bytes(self) -> int | None:
        """Return with how many bytes golden is computed in blocks; None where it is not."""
        above = self._setup.raised_above
        self.plan = None if self._is_whole or above is None else plan_of_call(self._call, above)
        return None if self.plan is None else self.plan.working_bytes

    def judged(
        self, trial: Trial, direction: Direction, select: Select, is_conclusive: Callable[[], bool]
    ) -> list[OutputResult] | None:
        """Return the verdicts that blocks give; None where golden is computed as a whole, which is let in then.

        ``is_conclusive`` returns whether the inputs show what the recorded ones did. Raises Skip where only the whole
        shows it or does not fit.
        """
        if self.plan is None:
            return None
        in_blocks = judged_in_blocks(trial, self.plan, direction, select, self._let_in_baseline)
        if in_blocks is not None and not is_conclusive():
            in_blocks = None
        if in_blocks is not None and in_blocks.is_sure:
            return in_blocks.results
        plan = self.plan
        try:
            self.admit_whole()
        except Skip:
            if in_blocks is None or self._may_be_excused(in_blocks):
                raise
            return self._in_float64(trial, plan, direction, select) or in_blocks.results
        return None

    def _in_float64(self, trial: Trial, plan: Plan, direction: Direction, select: Select) -> list[OutputResult] | None:
        """Return the verdicts against golden in float64, block by block; None where it is float64 already."""
        if not self._setup.policy.failures_in_float64 or not trial.raise_golden():
            return None
        try:
            in_blocks = judged_in_blocks(trial, plan, direction, select, self._let_in_baseline)
        except Skip:
            in_blocks = None
        if in_blocks is None:
            trial.lower_golden()
        return None if in_blocks is None else in_blocks.results

    def admit_whole(self) -> None:
        """Ask for the memory that golden takes as a whole. Raises Skip where it does not fit."""
        if self.plan is not None:
            plan, setup = self.plan, self._setup
            admit_whole(self._call, setup.device, setup.admit, plan.working_bytes, plan.window_bytes)
            self.plan, self._is_whole = None, True

    def _let_in_baseline(self) -> None:
        """Ask for the memory of a whole baseline in addition to what was let in. Raises Skip where it does not fit."""
        self._setup.admit(recorded_bytes(self._call), free_bytes)

    def _may_be_excused(self, in_blocks: InBlocks) -> bool:
        """Return whether modes of the device might explain a failure: only whole results are judged in modes."""
        stated = self._setup.math_mode == "auto" and reduced_precision(self._setup.device) != ReducedPrecision()
        return stated and any(result.verdict.outcome == "fail" for result in in_blocks.results)
