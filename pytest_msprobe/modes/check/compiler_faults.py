"""Telling the compiler's faults from the kernels', as a step after the verdict."""

from __future__ import annotations

from dataclasses import asdict, replace

from pytest_msprobe.devices.compiled import CompiledDevice
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.modes.check.compiled_result import Compiled, with_compiled
from pytest_msprobe.modes.check.follow_up import Judged
from pytest_msprobe.results.repeats import PASSED_AGAIN
from pytest_msprobe.results.result import LITTLE_JUDGED, DirectionResult


def add_compilation_note(judged: Judged) -> DirectionResult:
    """Say what was compiled, and of a failure whether the same call passes where it is not."""
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
