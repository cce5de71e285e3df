"""The whole check of one recorded call, without pytest."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from msprobe_hooks.dump.names import Direction
from msprobe_hooks.dump.schema import tensors_of
from msprobe_standards import Policy
from pytest_msprobe.devices.device import Device, hardware
from pytest_msprobe.engine.replay.async_trial import trial_on
from pytest_msprobe.engine.replay.blockwise.large_call import LargeCall
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.calls.arguments import TensorSource, build_arguments, has_tensor_files, tensor_source
from pytest_msprobe.engine.replay.calls.autocast import recorded_autocast
from pytest_msprobe.engine.replay.calls.grad_outputs import grad_outputs
from pytest_msprobe.engine.replay.calls.subject import Subject
from pytest_msprobe.engine.replay.inputs.random_tensors import stream_seed
from pytest_msprobe.engine.replay.judging.conditioning_note import add_conditioning_note
from pytest_msprobe.engine.replay.judging.directions import judge_backward, judge_forward
from pytest_msprobe.engine.replay.judging.informative_inputs import InformativeInputs
from pytest_msprobe.engine.replay.judging.outputs import result_of
from pytest_msprobe.engine.replay.judging.randomness_disabled import is_of_second_run
from pytest_msprobe.engine.replay.judging.standard_selection import StandardSelection
from pytest_msprobe.engine.replay.random_apis.unverifiable import JUDGES_LITTLE
from pytest_msprobe.engine.replay.screening.config import ScreenedPass
from pytest_msprobe.engine.replay.screening.screen_trial import cleared
from pytest_msprobe.engine.replay.trials.baseline_protocol import INPUT_DTYPES, SCALARS, TENSORS_UNUSED, Recorded
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.replay.trials.memory_budget import require_memory, return_freed_before
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.suppress_warnings import suppress_warnings
from pytest_msprobe.results.result import LITTLE_JUDGED, CallResult, DirectionResult, OutputResult
from pytest_msprobe.results.screened import ScreenedOutput, with_screened
from pytest_msprobe.results.skip_reasons import Skip, SkipReason

JudgeForward = Callable[[Trial], list[OutputResult]]
TrialOf = Callable[[Subject, Device], Trial]


def check_call(call: Call, *, device: Device, policy: Policy | str = "default", **options: Any) -> CallResult:
    """Check both directions of a call on an active device.

    ``options`` are the other fields of Setup. Raises DumpError where a tensor file of the dump is unusable.
    """
    chosen = Policy.load(policy) if isinstance(policy, str) else policy
    replay = Replay(call, ReplayConfig(device, chosen, **options))
    return CallResult(replay.forward(), replay.backward() if call.backward else None)


class Replay:
    """One call being checked. What both directions need is computed once and kept until the replay is dropped.

    ``source`` gives the call's tensors, by element and path, in place of those that the setup says; ``function`` is
    what the call's name stands for, None finds it by the name. ``recorded`` gives what a recorded baseline
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
        self.raised: list[BaseException] = []
        self.call = setup.framework.in_torch_terms(call)
        self.setup = setup
        self._source = source
        self._function = function
        self._is_given = is_given
        self._recorded = recorded
        self._trial_of = trial_of or functools.partial(trial_on(setup.device), baseline=setup.baseline)
        self._is_whole = trial_of is not None or recorded is not None
        self._large: LargeCall | None = None

    def judge(self, direction: Direction) -> DirectionResult:
        """Check the record of one direction."""
        return self.forward() if direction == "forward" else self.backward()

    def forward(self, judge: JudgeForward | None = None) -> DirectionResult:
        """Check the forward record, by the policy or by another judge of its trial."""
        if judge is None:
            return self._result("forward", judge_forward)
        return self._result("forward", lambda *_, **__: judge(self.trial), by_policy=False)

    def backward(self) -> DirectionResult:
        """Check the backward record, running the forward call first where that has not been done."""
        return self._result("backward", judge_backward)

    def input_tensors(self, direction: Direction) -> dict[str, torch.Tensor]:
        """Return the CPU tensors that one direction computes with, by path: ``args.0``, ``kwargs.weight``, ``grad.0``.

        Raises Skip and TargetError where the gradients that arrive cannot be made.
        """
        return input_tensors(self.trial, direction)

    def _result(
        self, direction: Direction, judge: Callable[..., list[OutputResult]], *, by_policy: bool = True
    ) -> DirectionResult:
        # That an API is deprecated is no concern of this check, nor may it end one where warnings are errors.
        with suppress_warnings():
            record = f"{self.call.name.key}.{direction}"
            recorded = self._recorded(record) if self._recorded else None
            measure_all = self.setup.measure_all
            screened: list[ScreenedOutput] = []

            def judged() -> list[OutputResult]:
                if self._large is not None:
                    return_freed_before(self.call)
                passed = self._cleared(direction) if by_policy and recorded is None else []
                screened.extend(each.seen for each in passed if each.seen is not None)
                if passed:
                    return [each.result for each in passed]
                in_blocks = self._in_blocks(direction, by_policy=by_policy)
                if in_blocks is not None:
                    return in_blocks
                return judge(
                    self._telling_trial(direction),
                    self._selection.select,
                    measure_all=measure_all,
                    recorded=recorded,
                    in_mode=self._selection.select_in_mode if self.setup.math_mode == "auto" else None,
                )

            # An exception keeps the tensors of its frames: one is kept for a test alone, which shows it.
            result = result_of(record, judged, None if self._function is None else self.raised)
            if screened:
                result = with_screened(result, screened)
            if result.verdict.outcome == "fail" and result.outputs and (stand_in := self.trial.subject.stand_in()):
                result = replace(result, notes=(stand_in[0].upper() + stand_in[1:], *result.notes))
            if result.verdict.outcome == "pass" and (little := self._little_judged(direction, result)):
                result = result.with_extra(LITTLE_JUDGED, little)
            if result.verdict.outcome == "fail" and not self._is_in_blocks:
                result = add_conditioning_note(result, self.trial, direction)
            if recorded is not None and recorded.problem:
                result = _told_unused(result, recorded.problem)
            self._forget_spent_trial()
            return self._with_inputs(result) if measure_all and result.outputs else result

    def _cleared(self, direction: Direction) -> list[ScreenedPass]:
        """Return the verdicts on a product that screening clears, whose inputs show what the recorded ones did."""
        if not self._may_be_screened:
            return []
        found = cleared(self.trial, direction, functools.partial(self._selection.select, direction), self.setup)
        if found and self._is_shown(direction):
            return found
        self.trial.redraw_inputs()
        return []

    def _forget_spent_trial(self) -> None:
        """Have a trial of which an input is gone made anew by whoever asks for it."""
        trial: Trial | None = vars(self).get("trial")
        if trial is not None and trial.has_released_inputs:
            del self.trial

    @functools.cached_property
    def _may_be_screened(self) -> bool:
        """Whether the call's tensors are large enough for a product or attention of so many operations.

        Each element of one factor meets each of another at most once; attention makes two products, of two operations.
        """
        above = self.setup.screen_above
        if above is None:
            return False
        record = self.call.forward
        elements = tensors_of([*record.args, *record.kwargs.values()])
        greatest = max((math.prod(element.shape) for element in elements), default=0)
        return 4 * greatest * greatest > above

    def _in_blocks(self, direction: Direction, *, by_policy: bool) -> list[OutputResult] | None:
        """Return the verdicts on a large call that is computed in blocks; None for any other. Raises as `LargeCall`."""
        trial, large = self.trial, self._large
        if large is None:
            return None
        if not by_policy:
            large.admit_whole()
        select = functools.partial(self._selection.select, direction)
        return large.judged(trial, direction, select, lambda: self._is_shown(direction))

    @property
    def _is_in_blocks(self) -> bool:
        return self._large is not None and self._large.plan is not None

    def _working_bytes(self) -> int | None:
        """Return with how many bytes golden of this large call is computed in blocks; None where it is not."""
        self._large = self._large or LargeCall(self.call, self.setup, is_whole=self._is_whole)
        return self._large.working_bytes()

    def _with_inputs(self, result: DirectionResult) -> DirectionResult:
        dtypes = sorted(map(str, self._selection.input_dtypes))
        return result.with_extra(INPUT_DTYPES, dtypes).with_extra(SCALARS, self._selection.scalars)

    @functools.cached_property
    def _selection(self) -> StandardSelection:
        arguments = self.trial.subject.arguments
        return StandardSelection(
            self.setup.policy,
            self.call.api,
            arguments.tensor_dtypes,
            self.setup.framework.name,
            hardware(self.setup.device),
            scalars=arguments.has_rounded_scalars,
            recorded_baseline=self._recorded is not None or self.setup.baseline is not None,
        )

    @functools.cached_property
    def _telling(self) -> InformativeInputs | None:
        """The search for inputs that tell, where they are random and not those of files."""
        is_given = self._source is not None or (self.setup.real_data and has_tensor_files(self.call))
        return None if is_given else InformativeInputs(self.call)

    def _is_shown(self, direction: Direction) -> bool:
        """Tell whether the target's results show what the recorded ones do, which they may lack of drawn inputs."""
        return self._telling is None or self._telling.is_informative(self.trial, direction)

    def _telling_trial(self, direction: Direction) -> Trial:
        """Return the trial, with narrower inputs where the first ones drawn lose what the recorded results show.

        A backward record looks at both directions, so that it gets the same inputs wherever it runs.
        """
        if self._telling is not None:
            narrower = functools.partial(self._made, narrow=True)
            self.trial = self._telling.better_of(self.trial, narrower, "forward")
            if direction == "backward":
                self.trial = self._telling.better_of(self.trial, narrower, "backward")
        return self.trial

    def _little_judged(self, direction: Direction, result: DirectionResult) -> str:
        """Say why a verdict that passes says little; empty where it does not."""
        if isinstance(self.trial.randomness, JUDGES_LITTLE) and not any(map(is_of_second_run, result.outputs)):
            return result.verdict.reason
        lost = "" if self._telling is None else self._telling.lost(direction)
        return lost or self.trial.subject.stand_in()

    @functools.cached_property
    def trial(self) -> Trial:
        """The three runs of the call. Raises Skip where the call cannot be rebuilt."""
        return self._made(narrow=False)

    def _made(self, *, narrow: bool) -> Trial:
        call, setup = self.call, self.setup
        if call.forward.exception is not None:
            raise Skip(SkipReason.RAISED, call.forward.exception)
        functions = setup.framework.functions(call, setup.references, setup.device, self._function)
        require_memory(call, setup.device, setup.admit, self._working_bytes)
        seed, real_data = setup.seed, setup.real_data
        drawn = functools.partial(
            build_arguments, call, seed=seed, real_data=real_data, narrow=narrow, source=self._source
        )
        arguments = drawn()
        source = self._source or tensor_source(call, seed=seed, real_data=real_data, narrow=narrow)
        backward, telling = call.backward, self._telling
        look = None
        if telling is not None and (self._is_in_blocks or self._may_be_screened):
            # No method of this object, which would keep itself alive with all tensors.
            look = functools.partial(telling.note_results, setup.device.get)
        subject = Subject(
            key=call.name.key,
            api=call.api,
            target=functions.target,
            golden=functions.golden,
            arguments=arguments,
            grad_outputs=None if backward is None else functools.partial(grad_outputs, backward, source, look),
            autocast=recorded_autocast(call.forward, arguments.tensor_dtypes) if setup.framework.autocasts else None,
            output_dtypes=tuple(element.dtype for element in tensors_of(call.forward.output)),
            seed=stream_seed(seed, call.name.key, "generator"),
            stand_in=functions.stand_in,
            call=call,
            drawn=None if telling is None else (seed, narrow),
            drawn_again=None if telling is None or narrow else drawn,
            is_given=self._is_given,
        )
        return self._trial_of(subject, setup.device)


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


def _told_unused(result: DirectionResult, problem: str) -> DirectionResult:
    note = f"The baseline's tensors were not used, but its numbers: {problem}"
    return replace(result, notes=(note, *result.notes)).with_extra(TENSORS_UNUSED, problem)
