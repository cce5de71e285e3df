"""The verdict on a call that the training has made, by the replay that judges records of a dump, and all results."""

from __future__ import annotations

import contextlib
import copy
import logging
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch.autograd.graph import saved_tensors_hooks

from msprobe_hooks.dump.names import Direction, api_record, backward_of, parse_api_name
from msprobe_hooks.dump.recording_paths import recording_folder
from msprobe_hooks.dump.schema import TensorElement, backward_record, forward_record, walk_tensors
from msprobe_hooks.json_decoding import decode_json
from msprobe_hooks.torch.gradients import saved_tensors_hooks as training_hooks
from msprobe_hooks.torch.no_dispatch import NoDispatch
from msprobe_standards.verdict import Verdict
from pytest_msprobe.containment.run_in_process import internal_failure
from pytest_msprobe.devices.accelerator import Accelerator
from pytest_msprobe.devices.device import Device
from pytest_msprobe.devices.registry import DeviceRegistry
from pytest_msprobe.engine.framework_names import PYTORCH
from pytest_msprobe.engine.replay.call import Call, operation
from pytest_msprobe.engine.replay.calls.arguments import Arguments, Subject, TensorSource
from pytest_msprobe.engine.replay.calls.side import Gradients, Run, Side, finished
from pytest_msprobe.engine.replay.check import JudgeForward, Replay
from pytest_msprobe.engine.replay.ops.op_info import op_info
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.pytree import tensors_with_paths
from pytest_msprobe.errors import JournalError
from pytest_msprobe.extensions.live_checks.observed_call import Awaiting, Observed, Stack, called_from
from pytest_msprobe.journal import Entry, JournalWriter, LeftOut
from pytest_msprobe.modes.check.reruns import repeated
from pytest_msprobe.modes.check.save_case import CaseOrigin, save_case
from pytest_msprobe.modes.check.saved_case import NO_RECORD, SavedCase, saved_folder, with_saved
from pytest_msprobe.results.outcomes import BaseSkipReason, Skip, SkipReason
from pytest_msprobe.results.result import DirectionResult, Start
from pytest_msprobe.storage.limits import SaveOptions

_log = logging.getLogger("pytest_msprobe")


class ObservedTrial(Trial):
    """A trial whose target has run.

    ``gradients`` are those that the training got for the call's inputs, by path. ``leads`` names for each path the one
    of its gradient: a tensor that is passed twice gets one gradient, their sum.
    """

    def __init__(
        self,
        subject: Subject,
        device: Device,
        *,
        run: Run,
        gradients: Gradients | None = None,
        leads: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(subject, device)
        # The default dtype is the process's: a thread of the training would make tensors in golden's.
        default = torch.get_default_dtype()
        self._golden_side = replace(self._golden_side, default_dtype=default)
        self._baseline_side = replace(self._baseline_side, default_dtype=default)
        self._leads = leads or {}
        self.target = run
        self.target_gradients = gradients or {}
        # What the training drew is judged by what it must be like; a run of ours would not be the training's.
        self.switched_off = None

    @property
    def draws_anew(self) -> bool:
        """False: the training does not make the call again."""
        return False

    def _golden_side_in_float64(self) -> Side:
        return replace(super()._golden_side_in_float64(), default_dtype=self._golden_side.default_dtype)

    def _blame(self, error: Exception) -> SkipReason:
        # The training made the call with these inputs: nothing was rebuilt that an API could reject.
        return SkipReason.NO_GOLDEN

    def _backward(self, run: Run, side: Side) -> Gradients:
        summed: Gradients = {}
        for path, gradient in super()._backward(run, side).items():
            lead = self._leads.get(path)
            if lead is not None and gradient is not None:
                earlier = summed.get(lead)
                summed[lead] = gradient if earlier is None else earlier + gradient
        return summed


class Judge:
    """Judges calls, each on the device that the training made it on. ``setup`` is what all checks have in common.

    Results are judged by the policy, or ``by`` another judge of their trial. With ``repeat`` a result that has not the
    same bits when the call is made once more is wrong as well.
    """

    def __init__(self, setup: ReplayConfig, by: JudgeForward | None = None, *, repeat: bool = False) -> None:
        self._setup = setup
        self._by = by
        self._repeat = repeat
        self._registry = DeviceRegistry()
        self._setups: dict[torch.device, ReplayConfig] = {}

    def run_of(self, observed: Observed) -> tuple[Call, Run]:
        """Return a call as its record has it, and the run that the training made."""
        call = Call(
            parse_api_name(observed.name), forward_record(observed.name, decode_json(observed.forward)), None, Path()
        )
        api = self._setup.framework.in_torch_terms(call).api
        arguments, tensors = (
            Arguments(observed.args, observed.kwargs, frozenset()),
            arguments_of(observed.args, observed.kwargs),
        )
        run = finished(
            _as_recorded(observed.output, observed.args), operation(api), arguments, tensors, observed.versions, {}
        )
        return call, run

    def forward(self, observed: Observed, call: Call, run: Run) -> tuple[DirectionResult, Replay]:
        """Judge what a call returned and changed, given what ``run_of`` returned."""
        inputs = arguments_of(observed.args, observed.kwargs).values()
        setup = self._setup_for([*inputs, *(output for _, output in tensors_with_paths(observed.output))])
        replay = Replay(call, setup, _source(observed.inputs), trial_of=partial(ObservedTrial, run=run))
        return _judged(replay, "forward", lambda: self._repeated(replay, replay.forward(self._by))), replay

    def backward(
        self,
        awaiting: Awaiting,
        backward: bytes,
        arriving: Mapping[str, torch.Tensor],
        leaving: Sequence[torch.Tensor | None],
    ) -> tuple[DirectionResult, Replay]:
        """Judge the gradients that are ``leaving``, of the inputs that require one, for those ``arriving`` by file."""
        name = backward_of(awaiting.name)
        forward = forward_record(awaiting.name, decode_json(awaiting.forward))
        call = Call(parse_api_name(awaiting.name), forward, backward_record(name, decode_json(backward)), Path())
        walked = (*walk_tensors(forward.args, "args"), *walk_tensors(forward.kwargs, "kwargs"))
        paths = [path for path, element in walked if element.requires_grad]

        def trial_of(subject: Subject, device: Device) -> ObservedTrial:
            gradients, leads = _by_path(paths, leaving, awaiting.shared)
            return ObservedTrial(subject, device, run=awaiting.run, gradients=gradients, leads=leads)

        source = _source({**awaiting.inputs, **arriving})
        setup = self._setup_for([gradient for gradient in leaving if gradient is not None])
        replay = Replay(call, setup, source, trial_of=trial_of)
        return _judged(replay, "backward", replay.backward), replay

    def _repeated(self, replay: Replay, result: DirectionResult) -> DirectionResult:
        # What the training drew cannot be drawn again.
        if not self._repeat or result.skip is not None or replay.trial.randomness is not None:
            return result
        return repeated(replay, "forward", result, 2)

    def _setup_for(self, tensors: Sequence[torch.Tensor]) -> ReplayConfig:
        """Return the setup of the device that computed these: the first that is not the CPU.

        MindSpore computes on one device, which the setup names, and its tensors come as copies on the CPU.
        """
        if self._setup.framework.name != PYTORCH:
            return self._setup
        places = [tensor.device for tensor in tensors]
        place = next((candidate for candidate in places if candidate.type != "cpu"), torch.device("cpu"))
        if place not in self._setups:
            device = copy.copy(self._registry.get(place.type))
            if isinstance(device, Accelerator):
                device.index = place.index or 0
            self._setups[place] = replace(self._setup, device=device)
        return self._setups[place]


def _as_recorded(output: Any, args: Sequence[object]) -> Any:
    # A record has no tuples among the arguments: what returns one that it was given returns a list to golden.
    return list(output) if isinstance(output, tuple) and any(output is argument for argument in args) else output


def arguments_of(args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, torch.Tensor]:
    """Return the tensors among a call's arguments that show when they are written to, by their paths."""
    tensors = (*tensors_with_paths(args, "args"), *tensors_with_paths(kwargs, "kwargs"))
    return {path: tensor for path, tensor in tensors if not tensor.is_inference()}


def _judged(replay: Replay, direction: Direction, judge: Callable[[], DirectionResult]) -> DirectionResult:
    try:
        with without_side_effects(draws=may_consume_rng(replay.call.name.api)):
            return judge()
    except Exception as error:
        return internal_failure(api_record(replay.call.name.key, direction), error)


def _source(tensors: Mapping[str, torch.Tensor]) -> TensorSource:
    """Return what gives a call's tensors by the names that their files would have."""

    def give(element: TensorElement, path: str) -> torch.Tensor:
        if element.data_name is None:
            raise Skip(LiveSkip.NOT_SEEN, f"{path} has another shape than its output")
        return tensors[element.data_name]

    return give


def _by_path(
    paths: Sequence[str], leaving: Sequence[torch.Tensor | None], shared: Sequence[Sequence[int]]
) -> tuple[Gradients, dict[str, str]]:
    """Return the gradients by the path of the first input that each is of, and that path for each of its inputs.

    Raises Skip where these are not the inputs that gradients came for.
    """
    if len(paths) != len(leaving):
        raise Skip(LiveSkip.NOT_SEEN, f"{len(paths)} inputs require one, {len(leaving)} were seen")
    came = [places for places in shared if leaving[places[0]] is not None]
    if not came:
        raise Skip(SkipReason.NO_GRADIENT, "none came for any input")
    gradients: Gradients = {paths[places[0]]: leaving[places[0]] for places in came}
    return gradients, {paths[place]: paths[places[0]] for places in came for place in places}


@contextlib.contextmanager
def without_side_effects(*, draws: bool) -> Iterator[None]:
    """Compute here as if outside of the training: its modes reach nothing, and nothing reaches its generators.

    The state of the CPU's default generator is put back where what runs here ``draws``. It is shared by all threads: to
    put it back where nothing was drawn would have a thread that draws meanwhile draw the same numbers again.

    Checkpointing counts the tensors that calls save; those that are saved in here are kept from it.
    """
    state = torch.get_rng_state() if draws else None
    with contextlib.ExitStack() as contexts:
        if torch.is_inference_mode_enabled():
            contexts.enter_context(torch.inference_mode(False))
        contexts.enter_context(torch.autocast("cpu", enabled=False))
        if torch.is_anomaly_enabled():
            contexts.enter_context(torch.autograd.set_detect_anomaly(False))
        if training_hooks() is not None:
            contexts.enter_context(saved_tensors_hooks(_same, _same))
        contexts.enter_context(NoDispatch())
        contexts.enter_context(torch.enable_grad())
        try:
            yield
        finally:
            if state is not None and not torch.equal(state, torch.get_rng_state()):
                torch.set_rng_state(state)


@cache
def may_consume_rng(api: str) -> bool:
    """Return whether a function of PyTorch may draw from a default generator, by its name without its type.

    An operator's schema says so; what is no operator may.
    """
    if op_info(api).random is not None:
        return True
    for name in (api.replace(".", "_"), api.partition(".")[0]):
        operator = getattr(torch.ops.aten, name.strip("_"), None)
        if operator is not None:
            schemas = (getattr(operator, overload) for overload in operator.overloads())
            return any(torch.Tag.nondeterministic_seeded in schema.tags for schema in schemas)
    return True


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


class LiveSkip(BaseSkipReason):
    """Reasons for which a call of a running training is not judged."""

    NOT_SEEN = "its gradients could not be distinguished"
    NEVER_JUDGED = "no call of its kind was judged while the training ran"


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A policy and its level as the user named them."""

    name: str
    level: str | None = None


class Findings:
    """Takes one result after the other; ``command`` is what ran the training."""

    def __init__(
        self, journal: JournalWriter | None, save: SaveOptions | None, policy: NamedPolicy, command: str
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.failed: list[DirectionResult] = []
        self.skips: Counter[str] = Counter()
        self.failure: JournalError | None = None
        #: Where the calls are made, as a folder of a recording: ``step0/rank``.
        self.place = recording_folder(0, None)
        self._journal = journal
        self._save = save
        self._policy = policy
        self._command = command
        self._cards: set[str] = set()
        self._unreported: list[tuple[DirectionResult, Stack]] = []

    def add(
        self, result: DirectionResult, replay: Replay, forward: bytes, backward: bytes | None, stack: Stack
    ) -> None:
        """Take what came of one record: a failure with where it was called, saved where that is asked for."""
        if result.verdict.outcome == "fail":
            result = replace(result, notes=(called_from(stack), *result.notes))
            if self._save is not None:
                result = with_saved(result, self._saved(self._save, result, replay, forward, backward))
            self.failed.append(result)
            self._unreported.append((result, stack))
        self.counts[result.outcome] += 1
        if result.verdict.outcome == "skip":
            self.skips[result.verdict.reason if result.skip is None else str(result.skip)] += 1
        if self._journal is not None:
            self._write(result, replay)

    def skip(self, place: Path, record: str, detail: str) -> None:
        """Note that neither a record nor any like it was judged."""
        reason = LiveSkip.NEVER_JUDGED
        words = f"{reason.value}: {detail}" if detail else reason.value
        result = DirectionResult(record, Verdict("skip", "", words), skip=reason)
        self.counts["skip"] += 1
        self._append(Entry(f"{place}::{record}", result.outcome, result))

    def leave_out(self, counts: Mapping[str, int]) -> None:
        """Note how many calls and gradients were left out, by reason."""
        self._append(LeftOut(dict(counts)))

    def next_failures(self) -> list[tuple[DirectionResult, Stack]]:
        """Return the failures since this was last asked, with where they were called."""
        unreported, self._unreported = self._unreported, []
        return unreported

    def rerun(self, result: DirectionResult) -> str:
        """Return the command that judges a failed record again: its saved case, else the whole training."""
        folder = saved_folder(result.extras)
        return shlex.join(["pytest-msprobe", "replay", folder]) if folder else self._command

    def close(self) -> None:
        """Close the journal."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _write(self, result: DirectionResult, replay: Replay) -> None:
        device, framework = replay.setup.device, replay.setup.framework
        card = card_of(device)
        if card not in self._cards:
            self._cards.add(card)
            self._append(Start(card, framework.describe(device), framework.math_modes(device)))
        self._append(Entry(f"{self.place}::{result.record}", result.outcome, result, card))

    def _append(self, line: Entry | Start | LeftOut) -> None:
        if self._journal is None:
            return
        try:
            self._journal.write(line)
        except JournalError as error:
            _log.error("live check stopped: %s", error)
            self.failure = error
            self.close()

    def _saved(
        self, options: SaveOptions, result: DirectionResult, replay: Replay, forward: bytes, backward: bytes | None
    ) -> SavedCase:
        backward_body = NO_RECORD if backward is None else msgspec.Raw(backward)
        origin = CaseOrigin(
            self.place, msgspec.Raw(forward), backward_body, self._policy.name, self._policy.level, has_file=False
        )
        with without_side_effects(draws=may_consume_rng(replay.call.name.api)):
            return save_case(replay, result, origin, options)


def card_of(device: Device) -> str:
    """Return the card that a device computes on, such as ``npu:0``.

    MindSpore takes tensors from the CPU and gives them back there, wherever it computes.
    """
    described = device.describe().split()[0]
    return described if described.startswith(f"{device.name}:") else str(device.location())
