"""The whole check of one recorded call, without pytest: strategies of judging, and a rerun on contiguous tensors."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch

from msprobe_hooks.dump.memory_layouts import Layout, contiguous_stride, format_stride
from msprobe_hooks.dump.names import Direction
from msprobe_standards.verdict import Outcome
from pytest_msprobe.devices.card import compute_something
from pytest_msprobe.devices.device import Device
from pytest_msprobe.engine.replay.annotators import ANNOTATORS
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.calls.arguments import TensorSource
from pytest_msprobe.engine.replay.judging.directions import judge_backward, judge_forward
from pytest_msprobe.engine.replay.judging.half_precision import (
    beyond_float32_sums,
    is_rounded_more,
    judged_in_float64,
    with_narrow_roundoffs,
)
from pytest_msprobe.engine.replay.judging.outputs import result_of
from pytest_msprobe.engine.replay.prepared_call import DirectionCheck, PreparedCall, TrialOf
from pytest_msprobe.engine.replay.rerun_differences import PASSED_AGAIN
from pytest_msprobe.engine.replay.strategies import Strategy
from pytest_msprobe.engine.replay.trials.baseline_protocol import Recorded
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.replay.trials.memory_budget import return_freed_before
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.strides import is_lazy
from pytest_msprobe.engine.values.suppress_warnings import suppress_warnings
from pytest_msprobe.results.outcomes import Breakdown
from pytest_msprobe.results.result import NARROW_SUMS, DirectionResult, OutputResult

JudgeForward: TypeAlias = Callable[[Trial], list[OutputResult]]

#: Under this name a failing result holds what the same call comes to on contiguous tensors: an outcome.
CONTIGUOUS = "contiguous"

# An explanation may not take a slow item beyond its time limit. A choice in seconds: it runs the call up to twice more.
_LONGEST_EXPLAINED = 20.0
_MOST_NAMED = 3


def judge_in_blocks(check: DirectionCheck) -> list[OutputResult] | None:
    """Return the verdicts on a large call whose golden is computed in blocks; raises as `LargeCall`."""
    prepared, direction = check.prepared, check.direction
    # Whether a call is large is known once its trial is made.
    trial, large = prepared.trial, prepared.large
    if large is None:
        return None
    select = partial(prepared.selection.select, direction)
    results = large.judged(trial, direction, select, lambda: prepared.has_informative_inputs(direction))
    if results is None or not (prepared.demands_float32_sums and any(map(is_rounded_more, results))):
        return results
    # What its sums may err by only the whole shows.
    large.admit_whole()
    return None


def judge_exactly(check: DirectionCheck) -> list[OutputResult]:
    """Return the verdicts on any call, by all values of its target and golden runs."""
    prepared, direction = check.prepared, check.direction
    judge = judge_forward if direction == "forward" else judge_backward
    # The selection is that of the trial which is judged.
    trial, selection = prepared.informative_trial(direction), prepared.selection

    def judged() -> list[OutputResult]:
        results = judge(
            trial,
            selection.select,
            measure_all=prepared.setup.measure_all,
            recorded=check.recorded,
            in_mode=selection.select_in_mode if prepared.setup.math_mode == "auto" else None,
        )
        beyond = beyond_float32_sums(trial, direction, results)
        if prepared.demands_float32_sums:
            return [beyond.get(result.path, result) for result in results]
        if beyond:
            worst = max(beyond.values(), key=lambda result: result.verdict.margin)
            times = f"{worst.verdict.margin:.2g} times what float32 accumulation allows"
            check.extras[NARROW_SUMS] = f"within the policy's limits, {times} at {worst.path}"
            check.properties[NARROW_SUMS] = check.extras[NARROW_SUMS]
        return results

    return judged_in_float64(trial, judged) if prepared.setup.policy.failures_in_float64 else judged()


def judge_by(judge: JudgeForward) -> Strategy:
    """Return the strategy of another judge than the policy; it looks at whole results, which have to fit in memory."""

    def judge_whole(check: DirectionCheck) -> list[OutputResult]:
        trial, large = check.prepared.trial, check.prepared.large
        if large is not None:
            large.admit_whole()
        return judge(trial)

    return judge_whole


def judge_by_first(strategies: Sequence[Strategy], check: DirectionCheck) -> list[OutputResult]:
    """Return the verdicts of the first strategy that answers; the last one answers for every call."""
    if check.prepared.large is not None:
        return_freed_before(check.prepared.call)
    outputs = next(outputs for judge in strategies if (outputs := judge(check)) is not None)
    return with_narrow_roundoffs(check.prepared.trial, outputs)


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
        words = f"with {_in_words(layouts)}; contiguous inputs were not tried, which would take long"
        return _with_words(result, words)

    def judged(call: PreparedCall) -> Outcome:
        again = DirectionCheck(call, direction, check.recorded)
        return result_of(result.record, functools.partial(judge_by_first, strategies, again)).verdict.outcome

    contiguous = judged(prepared.contiguous())
    may_be_cause = contiguous not in ("fail", "skip")
    again = judged(prepared.again()) if may_be_cause else "fail"
    if may_be_cause and again == "fail":
        layouts = _cause(layouts, lambda: judged(prepared.in_memory("resolved")))
    words = _words(contiguous, again, _in_words(layouts))
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
        replace(output, verdict=verdict) if output.verdict == result.verdict else output for output in result.outputs
    )
    return replace(result, verdict=verdict, outputs=outputs)


class _Named(NamedTuple):
    """Name of a tensor's layout: its place in memory, its lazy bits, and if it shares memory; empty where usual."""

    place: str
    bits: str
    sharing: str = ""


def _layouts(prepared: PreparedCall, direction: Direction) -> dict[str, _Named]:
    """Return what lay how by path, nothing where all was contiguous."""
    arguments = prepared.trial.subject.arguments
    tensors, tied = dict(arguments.tensors()), arguments.tied
    named = {
        path: _named(tuple(tensors[path].shape), layout)._replace(sharing=", which shares memory" * (path in tied))
        for path, layout in arguments.layouts.items()
    }
    if direction == "backward":
        arriving = vars(prepared.trial).get("grad_outputs", {})
        for path, gradient in arriving.items():
            if not gradient.is_contiguous() or gradient.storage_offset() or is_lazy(gradient):
                bits = {"is_conj": gradient.is_conj(), "is_neg": gradient.is_neg()}
                layout = Layout(gradient.stride(), gradient.storage_offset(), **bits)
                named[f"grad.{path}".rstrip(".")] = _named(tuple(gradient.shape), layout)
    return named


def _cause(layouts: dict[str, _Named], judged_without_bits: Callable[[], Outcome]) -> dict[str, _Named]:
    """Return of layouts with which a call fails, and without which it passes, the bits or the places if they matter."""
    places, bits = ({path: named for path, named in layouts.items() if named[part]} for part in (0, 1))
    outcome = judged_without_bits() if places and bits else "skip"
    if outcome == "skip":
        return layouts
    if outcome == "fail":
        return {path: named._replace(bits="") for path, named in places.items()}
    return {path: named._replace(place="") for path, named in bits.items()}


def _in_words(layouts: Mapping[str, _Named]) -> str:
    words = [
        f"{' and '.join(filter(None, (named.place, named.bits)))} of {path}{named.sharing}"
        for path, named in layouts.items()
    ]
    more = [f"{len(words) - _MOST_NAMED} more"] if len(words) > _MOST_NAMED else []
    return ", ".join([*words[:_MOST_NAMED], *more])


def _named(shape: tuple[int, ...], layout: Layout) -> _Named:
    named = (("the conjugate bit", layout.is_conj), ("the negative bit", layout.is_neg))
    bits = " and ".join(name for name, is_set in named if is_set)
    return _Named(_place(shape, layout) or ("" if bits else "a larger storage"), bits)


def _place(shape: tuple[int, ...], layout: Layout) -> str:
    for name in ("channels_last", "channels_last_3d"):
        if layout.stride == format_stride(name, shape):
            return name
    if layout.stride != contiguous_stride(shape):
        return f"stride {layout.stride}"
    return f"storage offset {layout.storage_offset}" if layout.storage_offset else ""


class Replay:
    """One call being checked. What both directions need is computed once and kept until the replay is dropped.

    ``source`` gives the call's tensors, by element and path, in place of those that the setup says; ``function`` is
    what the call's name refers to, None finds it by the name. ``recorded`` gives what a recorded baseline
    has of a record, by its name; None where there is no recorded baseline. ``trial_of`` makes the trial of the call,
    where its target is not to be run. ``is_given`` says that a test gives all tensors of the call, by ``source``.

    ``raised`` holds the exceptions of ``function``, and of golden for what a test gives, that results are about.
    """

    def __init__(
        self,
        call: Call,
        setup: ReplayConfig,
        source: TensorSource | None = None,
        function: Callable[..., Any] | None = None,
        recorded: Callable[[str], Recorded] | None = None,
        trial_of: TrialOf | None = None,
        *,
        is_given: bool = False,
    ) -> None:
        self._prepared = PreparedCall(call, setup, source, function, recorded, trial_of, is_given=is_given)
        self.call = self._prepared.call
        self.setup = setup
        self.raised: list[BaseException] = []
        # An exception keeps the tensors of its frames: one is kept for a test alone, which shows it.
        self._kept_causes = None if function is None else self.raised

    @property
    def trial(self) -> Trial:
        """The three runs of the call. Raises Skip where the call cannot be rebuilt."""
        return self._prepared.trial

    @property
    def contiguous_trial(self) -> Trial:
        """The trial of the same call on contiguous tensors, this one where none was recorded to lie otherwise."""
        return self._prepared.contiguous().trial if self._prepared.has_layouts else self.trial

    def again(self) -> Replay:
        """Return the replay of the same call on the same values, of which nothing is computed yet."""
        again = copy.copy(self)
        again._prepared = self._prepared.again()
        again.raised = []
        again._kept_causes = None if self._kept_causes is None else again.raised
        return again

    def judge(self, direction: Direction) -> DirectionResult:
        """Check the record of one direction."""
        return self.forward() if direction == "forward" else self.backward()

    def forward(self, judge: JudgeForward | None = None) -> DirectionResult:
        """Check the forward record, by the policy or by another judge of its trial."""
        return self._check("forward", self._by_policy if judge is None else (judge_by(judge),))

    def backward(self) -> DirectionResult:
        """Check the backward record, running the forward call first where that has not been done."""
        return self._check("backward", self._by_policy)

    @property
    def _by_policy(self) -> tuple[Strategy, ...]:
        """Return how a policy judges: the cheapest way first."""
        # A screen looks at sums of errors, which do not show how often a sum was rounded.
        screens = () if self._prepared.demands_float32_sums else self.setup.strategies.strategies
        return (*screens, judge_in_blocks, judge_exactly)

    def input_tensors(self, direction: Direction) -> dict[str, torch.Tensor]:
        """Return the CPU tensors that one direction computes with, by path: ``args.0``, ``kwargs.weight``, ``grad.0``.

        Raises Skip and TargetError where the gradients that arrive cannot be made.
        """
        return input_tensors(self.trial, direction)

    def _check(self, direction: Direction, strategies: Sequence[Strategy]) -> DirectionResult:
        # That an API is deprecated is no concern of this check, nor may it end one where warnings are errors.
        with suppress_warnings():
            record = f"{self.call.name.key}.{direction}"
            check = DirectionCheck(self._prepared, direction, self._prepared.recorded(record))
            result = result_of(record, functools.partial(judge_by_first, strategies, check), self._kept_causes)
            for annotate in ANNOTATORS:
                result = annotate(result, check)
            result = add_layout_note(result, check, strategies)
            self._prepared.drop_spent_trial()
            return result


def has_golden(replay: Replay, direction: Direction) -> bool:
    """Return whether the golden run of a call can be made, or its gradients be computed."""
    try:
        _ = replay.trial.golden if direction == "forward" else replay.trial.golden_gradients
    except Exception:
        return False
    return True


def input_tensors(trial: Trial, direction: Direction) -> dict[str, torch.Tensor]:
    """Return the CPU tensors that one direction of a trial computes with, by path; see `Replay.input_tensors`."""
    tensors = dict(trial.subject.arguments.tensors())
    if direction == "backward":
        tensors |= {f"grad.{path}": gradient for path, gradient in trial.grad_outputs.items()}
    return tensors
