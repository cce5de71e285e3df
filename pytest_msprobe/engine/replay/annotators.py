"""Annotators of a judged direction's result: they add notes and extras, and change no verdict.

An annotator returns the result with its note, or the result as it is where it has nothing to say.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from msprobe_standards.exemption import SAME_AS_CPU
from pytest_msprobe.engine.replay.judging.informative_inputs import without_number
from pytest_msprobe.engine.replay.judging.run_outputs import add_conditioning_note, is_of_second_run
from pytest_msprobe.engine.replay.ops.op_info import op_info
from pytest_msprobe.engine.replay.prepared_call import DirectionCheck
from pytest_msprobe.engine.replay.random_apis.unverifiable import JUDGES_LITTLE
from pytest_msprobe.engine.replay.trials.baseline_protocol import INPUT_DTYPES, SCALARS, TENSORS_UNUSED
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.results.result import LITTLE_JUDGED, DirectionResult, LeftOpen, with_left_open

_CPU_ERRS = "the CPU's own kernel in 16 bits gives the same result, which no rounding explains"
_ALL_OPEN = "all elements of a result are left open: any value is right"

Annotator: TypeAlias = Callable[[DirectionResult, DirectionCheck], DirectionResult]


def add_extras_of_strategy(result: DirectionResult, check: DirectionCheck) -> DirectionResult:
    """Add what the strategy that judged has to say."""
    for name, value in check.extras.items():
        result = result.with_extra(name, value)
    for name, text in check.properties.items():
        result = result.with_property(name, text)
    return result


def add_stand_in_note(result: DirectionResult, check: DirectionCheck) -> DirectionResult:
    """Add to a failure that the golden definition computed in place of a kernel of the device."""
    if result.verdict.outcome != "fail" or not result.outputs:
        return result
    stand_in = check.prepared.functions.stand_in()
    return _with_first_note(result, stand_in[0].upper() + stand_in[1:]) if stand_in else result


def add_weak_evidence(result: DirectionResult, check: DirectionCheck) -> DirectionResult:
    """Add to a pass why it says little."""
    if result.verdict.outcome != "pass":
        return result
    why = _weak_evidence(result, check)
    return result.with_extra(LITTLE_JUDGED, why) if why else result


def _weak_evidence(result: DirectionResult, check: DirectionCheck) -> str:
    """Return why a verdict that passes says little; empty where it does not."""
    prepared = check.prepared
    if isinstance(prepared.trial.randomness, JUDGES_LITTLE) and not any(map(is_of_second_run, result.outputs)):
        return result.verdict.reason
    if any(output.verdict.reason.startswith(SAME_AS_CPU) for output in result.outputs):
        return _CPU_ERRS
    if any(output.left_open and output.left_open == math.prod(output.shape) for output in result.outputs):
        return _ALL_OPEN
    if check.direction == "backward" and (name := _own_backward(prepared.trial)):
        return f"golden's gradients come from the backward of {name}, which was judged by itself"
    lost = "" if prepared.informative is None else prepared.informative.lost(check.direction)
    return lost or without_number(prepared.trial, check.direction) or prepared.functions.stand_in()


def add_left_open(result: DirectionResult, check: DirectionCheck) -> DirectionResult:
    """Add how many elements differ from golden where any value is right."""
    elements = sum(output.left_open for output in result.outputs)
    if not elements:
        return result
    leaves_open = op_info(check.prepared.trial.subject.operation).leaves_open
    of = sum(math.prod(output.shape) for output in result.outputs if output.left_open)
    left_open = LeftOpen(elements, of, leaves_open.why if leaves_open is not None else "")
    return _with_first_note(with_left_open(result, left_open), f"{left_open}.")


def _own_backward(trial: Trial) -> str:
    """Return which backward that is not torch's both sides of a trial have; empty where there is none."""
    golden, subject = vars(trial).get("golden"), trial.subject
    return golden.own_backward if golden is not None and subject.golden is subject.target else ""


def add_conditioning_factors(result: DirectionResult, check: DirectionCheck) -> DirectionResult:
    """Add to a failure how much the call amplifies the rounding of its inputs, for which golden has to run whole."""
    if result.verdict.outcome != "fail" or check.prepared.is_in_blocks:
        return result
    return add_conditioning_note(result, check.prepared.trial, check.direction)


def add_unused_tensors_note(result: DirectionResult, check: DirectionCheck) -> DirectionResult:
    """Add why the tensors of a recorded baseline were not used."""
    if check.recorded is None or not check.recorded.problem:
        return result
    problem = check.recorded.problem
    noted = _with_first_note(result, f"The baseline's tensors were not used, but its numbers: {problem}")
    return noted.with_extra(TENSORS_UNUSED, problem)


def add_selection_inputs(result: DirectionResult, check: DirectionCheck) -> DirectionResult:
    """Add what chose the standards besides API and output, where every metric was asked for."""
    if not check.prepared.setup.measure_all or not result.outputs:
        return result
    selection = check.prepared.selection
    dtypes = sorted(map(str, selection.input_dtypes))
    return result.with_extra(INPUT_DTYPES, dtypes).with_extra(SCALARS, selection.scalars)


def _with_first_note(result: DirectionResult, note: str) -> DirectionResult:
    return replace(result, notes=(note, *result.notes))


#: In the order in which they are applied: of two that put their note first, the later one's is read first.
ANNOTATORS: tuple[Annotator, ...] = (
    add_extras_of_strategy,
    add_stand_in_note,
    add_weak_evidence,
    add_left_open,
    add_conditioning_factors,
    add_unused_tensors_note,
    add_selection_inputs,
)
