"""A failing call run on contiguous tensors, then as recorded: is it wrong in any memory, in this one only, or once."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

import torch

from msprobe_hooks.dump.memory_layouts import Layout, contiguous_stride, format_stride
from msprobe_hooks.dump.names import Direction
from msprobe_standards.verdict import Outcome
from pytest_msprobe.devices.device import Device
from pytest_msprobe.devices.health import compute_something
from pytest_msprobe.engine.replay.judging.outputs import result_of
from pytest_msprobe.engine.replay.prepared_call import DirectionCheck, PreparedCall
from pytest_msprobe.engine.replay.strategies import Strategy, judge_by_first
from pytest_msprobe.results.outcomes import Breakdown
from pytest_msprobe.results.repeats import PASSED_AGAIN
from pytest_msprobe.results.result import DirectionResult

#: Under this name a failing result holds what the same call comes to on contiguous tensors: an outcome.
CONTIGUOUS = "contiguous"

# An explanation may not take a slow item beyond its time limit.
_LONGEST_EXPLAINED = 20.0
_MOST_NAMED = 3


def add_layout_note(result: DirectionResult, check: DirectionCheck, strategies: Sequence[Strategy]) -> DirectionResult:
    """Return a failing result with whether the layouts of its tensors matter; any other as it is.

    That takes a run on contiguous tensors of the same values, and where it passes another one as recorded: an error
    that comes once has no layout as its cause.
    """
    prepared, direction = check.prepared, check.direction
    if result.verdict.outcome != "fail" or prepared.memory != "recorded" or not prepared.runs_target:
        return result
    layouts = _layouts(prepared, direction)
    if not layouts or not _may_run_again(result, prepared.setup.device):
        return result
    if result.seconds > _LONGEST_EXPLAINED:
        return _with_words(result, f"with {layouts}; contiguous inputs were not tried, which would take long")

    def judged(call: PreparedCall) -> Outcome:
        again = DirectionCheck(call, direction, check.recorded)
        return result_of(result.record, functools.partial(judge_by_first, strategies, again)).verdict.outcome

    contiguous = judged(prepared.contiguous())
    may_be_cause = contiguous not in ("fail", "skip")
    words = _words(contiguous, judged(prepared.again()) if may_be_cause else "fail", layouts)
    return _with_words(result, words).with_extra(CONTIGUOUS, contiguous)


def _may_run_again(result: DirectionResult, device: Device) -> bool:
    """Return whether a call was judged, or raised and left the device working."""
    if result.breakdown is not Breakdown.RUN:
        return result.breakdown is None
    try:
        compute_something(device)
    except Exception:
        return False
    return True


def _words(contiguous: Outcome, again: Outcome, layouts: str) -> str:
    match contiguous, again:
        case "fail", _:
            return "with contiguous inputs too"
        case "skip", _:
            return f"with {layouts}; with contiguous inputs it cannot be judged"
        case _, "fail":
            return f"only with {layouts}"
        case _, "skip":
            return f"with {layouts}; it passes with contiguous inputs, but cannot be judged when run again"
        case _:
            return PASSED_AGAIN


def _with_words(result: DirectionResult, words: str) -> DirectionResult:
    """Return a result whose reason ends with these words, in the result and in the output that decided."""
    first, *rest = result.verdict.reason.split("\n")
    verdict = replace(result.verdict, reason="\n".join([f"{first}; {words}" if first else words, *rest]))
    outputs = tuple(
        replace(each, verdict=verdict) if each.verdict == result.verdict else each for each in result.outputs
    )
    return replace(result, verdict=verdict, outputs=outputs)


def _layouts(prepared: PreparedCall, direction: Direction) -> str:
    """Return what lay how in words, empty where all was contiguous."""
    subject = prepared.trial.subject
    tensors, layouts, tied = dict(subject.arguments.tensors()), dict(subject.arguments.layouts), subject.arguments.tied
    if direction == "backward":
        arriving = vars(prepared.trial).get("grad_outputs", {})
        for path, gradient in arriving.items():
            if not gradient.is_contiguous() or gradient.storage_offset():
                tensors[f"grad.{path}"] = gradient
                layouts[f"grad.{path}"] = Layout(gradient.stride(), gradient.storage_offset())
    named = [
        f"{_in_words(tensors[path], layout)} of {path}" + (", which shares memory" if path in tied else "")
        for path, layout in layouts.items()
    ]
    more = [f"{len(named) - _MOST_NAMED} more"] if len(named) > _MOST_NAMED else []
    return ", ".join([*named[:_MOST_NAMED], *more])


def _in_words(tensor: torch.Tensor, layout: Layout) -> str:
    shape = tuple(tensor.shape)
    for name in ("channels_last", "channels_last_3d"):
        if layout.stride == format_stride(name, shape):
            return name
    if layout.stride != contiguous_stride(shape):
        return f"stride {layout.stride}"
    return f"storage offset {layout.storage_offset}" if layout.storage_offset else "a larger storage"
