"""Context of failures: math modes, call site, the compiler's faults, and results that the CPU computed."""

from __future__ import annotations

import itertools
import math
from dataclasses import asdict, replace

import torch

from msprobe_hooks.dump.call_context import outside_frameworks
from msprobe_standards.tensor_layouts import is_plain
from pytest_msprobe.devices.compiled import CompiledDevice
from pytest_msprobe.engine.framework_names import PYTORCH
from pytest_msprobe.engine.replay.calls.arguments import TargetError
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.reruns.cpu_fallback import has_cpu_fallback, ops_without_kernel
from pytest_msprobe.engine.replay.reruns.differences import PASSED_AGAIN
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.error_kinds import is_out_of_memory
from pytest_msprobe.engine.values.pytree import map_tensors
from pytest_msprobe.engine.values.suppress_warnings import suppress_warnings
from pytest_msprobe.modes.check.follow_up import Judged
from pytest_msprobe.modes.check.tallies import Compiled, with_compiled
from pytest_msprobe.reports.text import clipped
from pytest_msprobe.results.outcomes import Skip
from pytest_msprobe.results.result import LITTLE_JUDGED, DirectionResult, InputStatistics, with_called_at, with_inputs

# What a journal keeps of a record is bounded, whatever its call is like.
_MOST_INPUTS, _MOST_FRAMES, _FRAME_LENGTH = 16, 20, 300


def add_failure_context(judged: Judged) -> DirectionResult:
    """Return the result of a failing record with statistics of its inputs and its call stack, innermost first."""
    result = judged.result
    if result.verdict.outcome != "fail" or result.breakdown is not None:
        return result
    frames = judged.dump.surroundings.stacks.of_call(result.record) or ()
    if frames:
        shown = [clipped(frame, _FRAME_LENGTH) for frame in outside_frameworks(frames)[:_MOST_FRAMES]]
        result = with_called_at(result, shown)
    try:
        inputs = judged.replay.input_tensors(judged.direction)
    except (Skip, TargetError):
        return result
    plain = ((path, tensor) for path, tensor in inputs.items() if is_plain(tensor) and tensor.numel())
    return with_inputs(
        result, [_statistics(*tensor_with_path) for tensor_with_path in itertools.islice(plain, _MOST_INPUTS)]
    )


def _statistics(path: str, tensor: torch.Tensor) -> InputStatistics:
    """Return the statistics of a tensor that has elements; of complex numbers those of their magnitudes."""
    magnitudes = tensor.abs() if tensor.is_complex() else tensor
    finite = magnitudes.detach().double()
    finite = finite[finite.isfinite()]
    least = greatest = mean = rms = math.nan
    if finite.numel():
        least, greatest, mean = float(finite.min()), float(finite.max()), float(finite.mean())
        rms = float(finite.square().mean().sqrt())
    lost = tensor.numel() - finite.numel()
    return InputStatistics(path, str(tensor.dtype), tuple(tensor.shape), least, greatest, mean, rms, lost)


def add_compilation_note(judged: Judged) -> DirectionResult:
    """Add what was compiled, and of a failure whether the same call passes where it is not."""
    device, result = judged.replay.setup.device, judged.result
    assert isinstance(device, CompiledDevice)
    compilation = device.take_compilation(result.record)
    if compilation is None:
        # It did not come to a run on the device.
        return result
    compiled = Compiled(device.backend, **asdict(compilation))
    result = with_compiled(result, compiled)
    if result.verdict.outcome == "fail":
        return replace(result, notes=(*result.notes, _whose_fault(judged, device)))
    if result.verdict.outcome == "pass" and compiled.left_eager and LITTLE_JUDGED not in result.extras:
        return result.with_extra(LITTLE_JUDGED, compiled.left_eager)
    return result


def _whose_fault(judged: Judged, device: CompiledDevice) -> str:
    """Return what the same call comes to where nothing is compiled, on the same inputs, and then compiled again."""
    replay = judged.replay
    eager = Replay(replay.call, replace(replay.setup, device=device.eager)).judge(judged.direction)
    match eager.verdict.outcome:
        case "fail":
            return f"It fails without torch.compile as well, so the kernel is wrong: {eager.reason}"
        case "skip":
            return f"Without torch.compile it cannot be judged: {eager.reason}"
        case _ if replay.again().judge(judged.direction).verdict.outcome != "fail":
            return f"It passes without torch.compile, and {PASSED_AGAIN} compiled: it is not wrong each time."
        case _:
            return f"It passes without torch.compile: the code that {device.backend} made of it is wrong."


class ReportLeftToCpu:
    """Runs a judged call once more, watched, and says what the card left to the CPU.

    It does so once for a function, dtypes, dimensions and other arguments: calls that share them use the same kernels.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[str, ...]] = {}

    def __call__(self, judged: Judged) -> DirectionResult:
        """Return the result of a judged call, with the operators that the card left to the CPU."""
        setup, result = judged.replay.setup, judged.result
        if not result.outputs or setup.framework.name != PYTORCH or not has_cpu_fallback(setup.device.location()):
            return result
        operators = self._operators(judged)
        if not operators:
            return result
        reason = f"the card has no {', '.join(operators)}: computed by the CPU"
        if result.verdict.outcome == "fail":
            return replace(result, notes=(*result.notes, f"{reason[0].upper()}{reason[1:]}."))
        little = "; ".join(filter(None, (reason, result.extras.get(LITTLE_JUDGED))))
        return result.with_extra(LITTLE_JUDGED, little)

    def _operators(self, judged: Judged) -> tuple[str, ...]:
        trial = judged.replay.trial
        kind = _kind(trial, judged)
        if kind not in self._known:
            with suppress_warnings():
                try:
                    self._known[kind] = ops_without_kernel(trial, judged.direction)
                except (Skip, TargetError):
                    return ()
                except Exception as error:
                    # There was room for one run; that there is none for a second takes no verdict back.
                    if not is_out_of_memory(error):
                        raise
                    return ()
        return self._known[kind]


def _kind(trial: Trial, judged: Judged) -> tuple[object, ...]:
    """Return what decides which kernels a call uses."""
    subject = trial.subject
    operands = [subject.arguments.args, subject.arguments.kwargs]
    arguments = map_tensors(lambda tensor: (tensor.dtype, tensor.dim(), tensor.layout), operands)
    return judged.replay.call.name.qualified_api, judged.direction, subject.autocast, repr(arguments)
