"""A recorded call made ready to be judged: its trial, which overlaps card and CPU, and its standards."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch

from msprobe_hooks.dump.names import Direction
from msprobe_hooks.dump.schema import ForwardRecord, tensors_of
from pytest_msprobe.devices.accelerator import Accelerator, launching
from pytest_msprobe.devices.device import Device, hardware
from pytest_msprobe.engine.framework_names import PYTORCH
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.calls.arguments import (
    Origin,
    Subject,
    TensorSource,
    build_arguments,
    has_tensor_files,
    tensor_source,
)
from pytest_msprobe.engine.replay.calls.grad_outputs import grad_outputs
from pytest_msprobe.engine.replay.calls.laid_out_tensors import Memory
from pytest_msprobe.engine.replay.calls.remote_calls import RemoteCallDevice
from pytest_msprobe.engine.replay.calls.side import Gradients, Run
from pytest_msprobe.engine.replay.framework import Functions
from pytest_msprobe.engine.replay.inputs.random_tensors import stream_seed
from pytest_msprobe.engine.replay.judging.informative_inputs import InformativeInputs
from pytest_msprobe.engine.replay.judging.outputs import StandardSelection
from pytest_msprobe.engine.replay.large_call import LargeCall
from pytest_msprobe.engine.replay.ops.lookup import is_operation
from pytest_msprobe.engine.replay.strategies import IsAccepted, StrategyRegistry
from pytest_msprobe.engine.replay.trials.baseline_protocol import Recorded
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.replay.trials.memory_budget import require_memory
from pytest_msprobe.engine.replay.trials.trial import Trial, on_target
from pytest_msprobe.engine.values.dtypes import dtype_named
from pytest_msprobe.engine.values.error_kinds import REFUSALS
from pytest_msprobe.results.outcomes import Skip, SkipReason

_AUTOCAST_DTYPES = (torch.float16, torch.bfloat16)

_Result = TypeVar("_Result")

_TARGETS = {"forward": "target", "backward": "target_gradients"}


def trial_on(device: Device, strategies: StrategyRegistry) -> Callable[..., Trial]:
    """Return what makes a trial for a device: one that launches its target where the device's calls can be."""
    card = launching(device)
    if card is None:
        return Trial
    return functools.partial(LaunchingTrial, card=card, is_accepted=strategies.is_accepted)


class LaunchingTrial(Trial):
    """A trial on a ``card`` that computes while the CPU does.

    Golden comes first so that no device is given what the CPU rejects. Hence the forward runs that are launched are
    those that are ``is_accepted`` by any CPU, such as products; gradients follow golden's forward run.
    """

    def __init__(
        self,
        subject: Subject,
        device: Device,
        baseline: RemoteCallDevice | None = None,
        *,
        card: Accelerator,
        is_accepted: IsAccepted,
    ) -> None:
        super().__init__(subject, device, baseline)
        self._card = card
        self._is_accepted = is_accepted
        self._launching_side = replace(self._target_side, invoke=card.launch)
        self._launched: dict[Direction, Callable[[], Any]] = {}

    @functools.cached_property
    def golden(self) -> Run:
        """The run in raised precision, while the target's product runs. Raises Skip where the CPU cannot make it."""
        subject = self.subject
        if not self._is_accepted(subject.operation, subject.arguments):
            return super().golden
        with self._beside("forward", lambda: self._forward(subject.target, self._launching_side)):
            return super().golden

    @functools.cached_property
    def golden_gradients(self) -> Gradients:
        """The gradients of the golden run, while the target runs. Raises Skip where the CPU cannot compute them."""
        _ = self.golden
        with contextlib.suppress(*REFUSALS):
            # Without them nothing is launched; why there are none is reported by golden's.
            _ = self.grad_outputs
        with self._beside("backward", lambda: self._backward(self.target, self._launching_side)):
            return super().golden_gradients

    @functools.cached_property
    def target(self) -> Run:
        """The run on the card. Raises Skip where it has no kernel, TargetError where it fails."""
        launched = self._launched.get("forward")
        return super().target if launched is None else on_target(launched)

    @functools.cached_property
    def target_gradients(self) -> Gradients:
        """The gradients of the target's run. Raises as ``target`` does."""
        launched = self._launched.get("backward")
        return super().target_gradients if launched is None else on_target(launched)

    @contextlib.contextmanager
    def _beside(self, direction: Direction, launch: Callable[[], object]) -> Iterator[None]:
        """Launch a run of the target that is still to be made, and wait for it at the end of the block.

        What goes wrong on the card is raised for this call, and where the target is asked for. What interrupts a record
        waits for no card.
        """
        if direction in self._launched or direction in self._failed or _TARGETS[direction] in vars(self):
            yield
            return
        launched = _attempted(launch)

        def waited() -> object:
            result = launched()
            self._card.synchronize()
            return result

        try:
            yield
        except Exception:
            self._launched[direction] = _attempted(waited)
            raise
        self._launched[direction] = _attempted(waited)


def _attempted(run: Callable[[], _Result]) -> Callable[[], _Result]:
    """Make a run, and return what gives its result or raises its error."""
    try:
        result = run()
    except Exception as error:
        failure = error

        def fail() -> _Result:
            raise failure

        return fail
    return lambda: result


TrialOf = Callable[[Subject, Device], Trial]


class PreparedCall:
    """Common needs of both directions of a call, computed once and kept until this object is dropped.

    The parameters are those of `Replay`. ``large`` says how golden of a large call is computed; None for a small call,
    and before ``trial`` is made.
    """

    def __init__(
        self,
        call: Call,
        setup: ReplayConfig,
        source: TensorSource | None,
        function: Callable[..., Any] | None,
        recorded: Callable[[str], Recorded] | None,
        trial_of: TrialOf | None,
        *,
        is_given: bool,
    ) -> None:
        self.call = setup.framework.in_torch_terms(call)
        self.setup = setup
        self.large: LargeCall | None = None
        self._source = source
        self._function = function
        self._is_given = is_given
        self._recorded = recorded
        self._trial_of = trial_of or functools.partial(
            trial_on(setup.device, setup.strategies), baseline=setup.baseline
        )
        self.runs_target = trial_of is None
        self._is_whole = trial_of is not None or recorded is not None

    @functools.cached_property
    def trial(self) -> Trial:
        """The three runs of the call. Raises Skip where the call cannot be rebuilt."""
        return self._build_trial(narrow=False)

    @property
    def has_layouts(self) -> bool:
        """Return whether a tensor that the device gets lies otherwise than contiguous."""
        forward, backward = self.call.forward, self.call.backward
        elements = [*tensors_of(forward.args), *tensors_of(forward.kwargs)]
        elements += [] if backward is None else tensors_of(backward.grad_outputs)
        return self.memory == "recorded" and any(element.layout is not None for element in elements)

    def contiguous(self) -> PreparedCall:
        """Return the same call on contiguous tensors."""
        return self.in_memory("contiguous")

    def again(self) -> PreparedCall:
        """Return the same call on the same values, of which nothing is computed yet."""
        return self.in_memory(self.setup.memory)

    def in_memory(self, memory: Memory) -> PreparedCall:
        """Return the same call on the same values where its tensors lie so."""
        again = PreparedCall(
            self.call,
            replace(self.setup, memory=memory),
            self._source,
            self._function,
            self._recorded,
            None if self.runs_target else self._trial_of,
            is_given=self._is_given,
        )
        again.call = self.call
        return again

    def drop_spent_trial(self) -> None:
        """Drop a trial of which an input is gone, so that it is made anew when it is needed again."""
        trial: Trial | None = vars(self).get("trial")
        if trial is not None and trial.has_released_inputs:
            del self.trial

    def recorded(self, record: str) -> Recorded | None:
        """Return what a recorded baseline has of a record; None where there is no recorded baseline."""
        return self._recorded(record) if self._recorded else None

    @functools.cached_property
    def selection(self) -> StandardSelection:
        """The choice of a standard for each output."""
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
    def may_be_screened(self) -> bool:
        """Return whether the call's tensors are large enough for a product or attention of so many operations.

        Each element of one factor meets each of another at most once; attention makes two products, of two operations.
        """
        above = self.setup.screen_above
        if above is None:
            return False
        record = self.call.forward
        elements = tensors_of([*record.args, *record.kwargs.values()])
        greatest = max((math.prod(element.shape) for element in elements), default=0)
        return 4 * greatest * greatest > above

    @property
    def memory(self) -> Memory:
        """Return where tensors lie on the device; only what torch drives can be given strides."""
        memory = self.setup.memory
        return "contiguous" if memory == "recorded" and self.setup.framework.name != PYTORCH else memory

    @property
    def demands_float32_sums(self) -> bool:
        """Return whether the policy fails sums that are not added up in float32."""
        return self.setup.policy.accumulation == "float32"

    @property
    def is_in_blocks(self) -> bool:
        """Return whether golden is computed block by block."""
        return self.large is not None and self.large.plan is not None

    @functools.cached_property
    def informative(self) -> InformativeInputs | None:
        """The search for informative inputs; None where the inputs are given or come from files."""
        is_given = self._source is not None or (self.setup.real_data and has_tensor_files(self.call))
        return None if is_given else InformativeInputs(self.call)

    def has_informative_inputs(self, direction: Direction) -> bool:
        """Return whether the target's results show what the recorded ones do, which those of drawn inputs may not."""
        return self.informative is None or self.informative.is_informative(self.trial, direction)

    def informative_trial(self, direction: Direction) -> Trial:
        """Return the trial, with narrower inputs where the first ones drawn lose what the recorded results show.

        A backward record looks at both directions, so that it gets the same inputs wherever it runs.
        """
        if self.informative is not None:
            narrower = functools.partial(self._build_trial, narrow=True)
            self.trial = self.informative.better_of(self.trial, narrower, "forward")
            if direction == "backward":
                self.trial = self.informative.better_of(self.trial, narrower, "backward")
        return self.trial

    @functools.cached_property
    def functions(self) -> Functions:
        """The functions that run for the call on either side. Raises Skip where there are none."""
        setup = self.setup
        return setup.framework.functions(self.call, setup.references, setup.device, self._function)

    def _working_bytes(self) -> int | None:
        """Return with how many bytes golden of this large call is computed in blocks; None where it is not."""
        self.large = self.large or LargeCall(self.call, self.setup, is_whole=self._is_whole)
        return self.large.working_bytes()

    def _build_trial(self, *, narrow: bool) -> Trial:
        call, setup, function = self.call, self.setup, self._function
        if call.forward.exception is not None:
            raise Skip(SkipReason.RAISED, call.forward.exception)
        functions = self.functions
        require_memory(call, setup.device, setup.admit, self._working_bytes)
        seed, real_data = setup.seed, setup.real_data
        drawn = functools.partial(
            build_arguments,
            call,
            seed=seed,
            real_data=real_data,
            narrow=narrow,
            source=self._source,
            memory=self.memory,
        )
        arguments = drawn()
        source = self._source or tensor_source(call, seed=seed, real_data=real_data, narrow=narrow)
        backward, informative = call.backward, self.informative
        look = None
        if informative is not None and (self.is_in_blocks or self.may_be_screened):
            # No method of this object, which would keep itself alive with all tensors.
            look = functools.partial(informative.note_results, setup.device.get)
        subject = Subject(
            key=call.name.key,
            api=call.api,
            target=functions.target,
            golden=functions.golden,
            arguments=arguments,
            grad_outputs=None
            if backward is None
            else functools.partial(grad_outputs, backward, source, look, memory=self.memory),
            autocast=recorded_autocast(call.forward, arguments.tensor_dtypes) if setup.framework.autocasts else None,
            output_dtypes=tuple(element.dtype for element in tensors_of(call.forward.output)),
            seed=stream_seed(seed, call.name.key, "generator"),
            origin=Origin(
                call,
                self.memory,
                drawn=None if informative is None else (seed, narrow),
                drawn_again=None if informative is None or narrow else drawn,
            ),
            is_given=self._is_given,
            draws_from_generator=setup.framework.name == PYTORCH and (function is None or is_operation(function)),
        )
        return self._trial_of(subject, setup.device)


@dataclass(slots=True)
class DirectionCheck:
    """One direction of a prepared call, while strategies judge it and annotators complete its result.

    ``recorded`` is what a recorded baseline has of this record. A strategy adds to ``extras`` and ``properties`` what
    the result is to hold, as plain data by name.
    """

    prepared: PreparedCall
    direction: Direction
    recorded: Recorded | None
    extras: dict[str, Any] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)


def recorded_autocast(record: ForwardRecord, inputs: Iterable[torch.dtype]) -> torch.dtype | None:
    """Return the dtype of the autocast region that a call was recorded in, None where it needs none.

    Floats of several widths, or a float output of another width than the inputs, occur where autocast chose.
    """
    floats = {dtype for dtype in inputs if dtype.is_floating_point}
    first = next(iter(tensors_of(record.output)), None)
    if first is not None and dtype_named(first.dtype).is_floating_point:
        floats.add(dtype_named(first.dtype))
    if len(floats) < 2:
        return None
    return next((dtype for dtype in _AUTOCAST_DTYPES if dtype in floats), None)
