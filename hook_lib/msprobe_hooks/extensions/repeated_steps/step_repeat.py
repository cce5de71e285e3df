"""The forward and backward pass of chosen steps, computed twice and compared bit by bit; causes of a difference."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import torch
from torch import nn

from msprobe_hooks.dump.recording_paths import recording_folder
from msprobe_hooks.errors import ConfigError, DifferingStepError, RecordingError
from msprobe_hooks.extensions.repeated_steps.differences import Call, Difference, Kind, Report, as_hex
from msprobe_hooks.extensions.repeated_steps.differing_call import REPETITIONS, CallCapture, DifferingCall
from msprobe_hooks.extensions.repeated_steps.digests import CallDigests, combined, first_other_call
from msprobe_hooks.extensions.repeated_steps.ranks import Ranks, Schedule, minority
from msprobe_hooks.extensions.repeated_steps.training_state import (
    RandomNumbers,
    TrainingState,
    WatchedPass,
    generators_of,
    parameter_digests,
    watched_pass,
)
from msprobe_hooks.messages import listed
from msprobe_hooks.recording.config import settings
from msprobe_hooks.torch.session import TorchSession, process_rank

#: So many communications come before a difference that is nowhere.
NOWHERE: Final = sys.maxsize

# A choice: the third pass keeps the inputs of so many calls that differ; those with undefined results are no cause.
MOST_PLACES: Final = 16


@dataclass(frozen=True, slots=True)
class Passes:
    """The three passes of a step; ``not_seen`` says why their calls were not compared, if they were not.

    ``calls`` are those that differ in the first two: which results, by place.
    """

    first: WatchedPass
    second: WatchedPass
    third: WatchedPass
    calls: dict[int, set[int]]
    not_seen: str


@dataclass(frozen=True, slots=True)
class Located:
    """The first call that differs: its place, itself, and how many communications began before it."""

    place: int | None
    call: DifferingCall | None
    communications: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """Kind of a difference, in words, with the pass that is odd and the call if they are known."""

    kind: Kind
    reason: str
    odd_pass: int | None = None
    call: Call | None = None


def located(passes: Passes, undefined: set[tuple[Any, int]]) -> Located:
    """Return the first call that differs, other than in memory that it has not written to; that is added."""
    digests, capture = passes.second.collector, passes.third.collector
    if digests is None or not isinstance(capture, CallCapture):
        return Located(None, None, NOWHERE)
    for place, results in [*passes.calls.items()][:MOST_PLACES]:
        call = capture.captured.get(place)
        if call is not None and results:
            undefined.update((call.operator, number) for number in call.undefined_results() & results)
            results = {number for number in results if (call.operator, number) not in undefined}
        if call is None or results:
            return Located(place, call, digests.communications_before(place))
    return Located(None, None, NOWHERE)


def received() -> Explanation:
    """Return the explanation for a process that has computed with what another one sent."""
    return Explanation("received", "the passes differ in what another rank has computed")


def explained(passes: Passes, position: Located, save: Callable[[DifferingCall], str | None]) -> Explanation:
    """Return why a step differs that began to in this process; ``save`` records a call and returns the folder."""
    if position.place is None:
        return _without_call(passes)
    first, second, third = passes.first, passes.second, passes.third
    place, call = position.place, position.call
    digests = tuple(one_pass.calls[place] if place < len(one_pass.calls) else () for one_pass in (first, second, third))
    name, odd = _name_of(second.collector, place), _odd_pass(*digests)
    words = f"{name} (call {place} of {len(second.calls)})"
    if call is None:
        return Explanation("not_repeatable", f"{words}: the third pass does not make it", odd)
    differing = call.differing_repetitions(digests[2])
    is_nondeterministic = call.is_nondeterministic(differing)
    dump = save(call)
    origin = call.origin
    record = Call(
        number=place,
        count=len(second.calls),
        operator=name,
        module=origin.module,
        source=origin.source,
        is_backward=origin.is_backward,
        digests=[as_hex(digest) for digest in digests],
        repetitions=REPETITIONS,
        differing=differing,
        dump=dump,
    )
    words = f"{words} {origin}" if str(origin) else words
    repetitions = f"{differing} of {REPETITIONS} repetitions on the same inputs differ"
    if is_nondeterministic:
        advice = "torch documents it as nondeterministic, torch.use_deterministic_algorithms(True) avoids it"
        reason = f"{words}: {advice}; nothing after it was compared"
        return Explanation("nondeterministic", reason, odd, record)
    if odd is None and not differing:
        reason = f"{words}: each pass gives it other inputs, {repetitions}"
        return Explanation("not_repeatable", reason, odd, record)
    saved = "" if dump is None else f"; saved: pytest --msprobe-dump {dump} --msprobe-repeat 100"
    return Explanation("wrong", f"{words}: {_in_words(odd)}, {repetitions}{saved}", odd, record)


def explained_third(passes: Passes, undefined: set[tuple[Any, int]]) -> Explanation:
    """Return why the third pass, which was made for another reason, differs from the first two."""
    digests, calls = passes.second.collector, passes.second.differing_calls(passes.third, undefined)
    place = min(calls, default=None)
    name = "no call that was seen" if place is None else f"{_name_of(digests, place)} (call {place})"
    return Explanation("wrong", f"{name}: pass 3 of 3 differs from the others, and its inputs were not kept", 3)


def _without_call(passes: Passes) -> Explanation:
    first, second, third = passes.first, passes.second, passes.third
    if first.collector is not None and second.collector is not None:
        other = first_other_call(first.collector, second.collector)
        if other is not None:
            names = [_name_of(one_pass.collector, other) for one_pass in (first, second)]
            return Explanation("not_repeatable", f"the first pass calls {names[0]} where the second calls {names[1]}")
    if not first.differing(second):
        return Explanation("not_repeatable", "the passes draw different random numbers")
    odd = _odd_pass(first.values, second.values, third.values)
    why = f"calls not compared: {passes.not_seen}" if passes.not_seen else "no call that was seen differs"
    return Explanation("not_repeatable" if odd is None else "wrong", f"{_in_words(odd)} ({why})", odd)


def _odd_pass(first: object, second: object, third: object) -> int | None:
    """Return which of three passes the other two disagree with, counted from 1; None where all three differ."""
    if third == first:
        return 2
    return 1 if third == second else None


def _in_words(odd: int | None) -> str:
    return "all three passes differ" if odd is None else f"pass {odd} of 3 differs from the others"


def _name_of(digests: CallDigests | None, place: int) -> str:
    return "nothing" if digests is None or place >= len(digests.operators) else str(digests.operators[place])


_log = logging.getLogger("msprobe_hooks")

Result = TypeVar("Result")
OnDifference = Literal["warn", "stop"]


class StepRepeat:
    """Runs a function that makes a forward and a backward pass: once, and in a watched step twice.

    ``report`` holds what was found until now.
    """

    def __init__(
        self,
        model: nn.Module,
        schedule: Schedule,
        folder: Path,
        *,
        sees_calls: bool,
        stateful: Sequence[Any],
        data_parallel_group: Any,
        on_difference: OnDifference,
    ) -> None:
        self._model = model
        self._schedule = schedule
        self._folder = folder
        self._stateful = stateful
        self._on_difference = on_difference
        self._ranks = Ranks(model, data_parallel_group)
        self._random = partial(RandomNumbers, model, generators_of(stateful))
        self._count = 0
        # Parameters that have left each other stay apart: this is reported once.
        self._has_odd_replicas = False
        # Results with memory that nothing is written to, by operator and place.
        self._undefined: set[tuple[Any, int]] = set()
        device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
        not_seen = "calls=False" if not sees_calls else "the model is compiled" if _is_compiled(model) else ""
        self.report = Report(
            rank=process_rank(),
            host=socket.gethostname(),
            card=str(device),
            not_seen=not_seen,
            compares_replicas=self._ranks.compares_replicas,
        )

    def __call__(self, function: Callable[[], Result]) -> Result:
        """Run the function and return what it returns; in a watched step compute it twice and compare.

        Training goes on with the bits of a single run; where passes differ, with those of the third.

        Raises:
            ConfigError: The function changes parameters, as an optimizer in the backward pass does.
            DifferingStepError: Passes differ, and ``on_difference="stop"``.
            RecordingError: The report cannot be written.
        """
        count, self._count = self._count, self._count + 1
        if self._schedule.is_watched(count):
            return self._watch(count, function)
        if count:
            return function()
        before = parameter_digests(self._model)
        result = function()
        self._require_unchanged(before)
        return result

    def __str__(self) -> str:
        return str(self.report)

    def _watch(self, count: int, function: Callable[[], Result]) -> Result:
        report, earlier = self.report, len(self.report.differences)
        step = self._schedule.step_of(count)
        micro_batch = count % self._schedule.micro_batches
        at = partial(
            Difference, step=step, micro_batch=micro_batch, rank=report.rank, host=report.host, card=report.card
        )
        before = parameter_digests(self._model)
        self._compare_replicas(before, at)
        state = TrainingState(self._model, self._stateful)
        torch.clear_autocast_cache()
        first, result = self._pass(function, self._collector())
        self._require_unchanged(before)
        # The graph of the first pass goes before the second is made.
        del result
        state.restore()
        second, result = self._pass(function, self._collector())
        report.watched += 1
        report.calls = len(second.calls)
        calls = first.differing_calls(second, self._undefined)
        if first.collector is not None and second.collector is not None:
            report.other_calls += first_other_call(first.collector, second.collector) is not None
        differs = bool(calls or first.differing(second)) or first.random.have_moved()
        if any(numbers[0] for numbers in self._ranks.gather([differs])):
            del result
            state.restore()
            capture = None if report.not_seen else CallCapture(self._model, [*calls][:MOST_PLACES])
            third, result = self._pass(function, capture)
            self._explain(Passes(first, second, third, calls, report.not_seen), at)
            is_odd = not first.differing(second) and bool(first.differing(third))
            if any(numbers[0] for numbers in self._ranks.gather([is_odd])):
                # Training goes on with what two passes agree on.
                del result
                state.restore()
                result = function()
        report.write(self._folder)
        if len(report.differences) > earlier and self._on_difference == "stop":
            raise DifferingStepError("; ".join(str(difference) for difference in report.differences[earlier:]))
        return result

    def _collector(self) -> CallDigests | None:
        return None if self.report.not_seen else CallDigests()

    def _pass(self, function: Callable[[], Result], collector: CallDigests | None) -> tuple[WatchedPass, Result]:
        return watched_pass(function, self._model, collector, self._random)

    def _require_unchanged(self, before: dict[str, int]) -> None:
        after = parameter_digests(self._model)
        changed = [name for name, digest in before.items() if after.get(name) != digest]
        if changed:
            allowed = "only a forward and a backward pass; call the optimizer outside, not in the backward pass"
            problem = f"the function of replay_step() changes parameters ({listed(changed, 3)}); allowed: {allowed}"
            raise ConfigError("function", changed[0], allowed, problem=problem)

    def _compare_replicas(self, before: dict[str, int], at: Callable[..., Difference]) -> None:
        digests = self._ranks.odd_replicas(combined(before.values()))
        if digests is None or self._has_odd_replicas:
            return
        self._has_odd_replicas = True
        odd, of_replicas = minority(digests), self._ranks.gather_replicas(list(before.values()))
        names = [
            name for name, numbers in zip(before, zip(*of_replicas, strict=True), strict=True) if len(set(numbers)) > 1
        ]
        which = f"{'rank' if len(odd) == 1 else 'ranks'} {listed(map(str, odd))}"
        others = "the others" if len(odd) < len(digests) else "each other"
        reason = f"parameters of {which} differ from {others} before the step, first {listed(names, 3)}"
        self._add(at(kind="replicas", reason=reason, values=names, odd_ranks=odd))

    def _explain(self, passes: Passes, at: Callable[..., Difference]) -> None:
        after = self._random()
        position = located(passes, self._undefined)
        values = passes.first.differing(passes.second)
        communications = position.communications
        origin = min(numbers[0] for numbers in self._ranks.gather([communications]))
        if values or position.place is not None or passes.first.random.have_moved():
            place = at(kind="wrong", reason="", values=[])
            why = received() if communications > origin else explained(passes, position, partial(self._save, place))
            differ = "1 value differs" if len(values) == 1 else f"{len(values)} values differ"
            what = f"{differ}: {listed(values, 3)}" if values else "result, gradients and buffers are equal"
            reason = f"{why.reason}; {what}"
            self._add(at(kind=why.kind, reason=reason, values=values, odd_pass=why.odd_pass, call=why.call))
        elif third := passes.second.differing(passes.third):
            why = explained_third(passes, self._undefined)
            self._add(at(kind=why.kind, reason=why.reason, values=third, odd_pass=3, call=why.call))
        self.report.undefined = sorted({str(operator) for operator, _ in self._undefined})
        after.restore()

    def _add(self, difference: Difference) -> None:
        self.report.differences.append(difference)
        _log.warning("%s", difference)

    def _save(self, place: Difference, call: DifferingCall) -> str | None:
        """Record a repetition of the call with its tensors; None where that is not possible, with a warning."""
        try:
            session = TorchSession(settings(self._folder, level="aten", task="tensor", extra_info=False))
            session.recorder.step = place.step
            session.start()
            try:
                call.run()
            finally:
                session.close()
        except (RecordingError, ConfigError) as error:
            _log.warning("the call is not saved: %s", error)
            return None
        return str(self._folder / recording_folder(place.step, place.rank)) if session.recorder.summary.calls else None


def _is_compiled(model: nn.Module) -> bool:
    """Return whether torch.compile has compiled anything in this process, or is to compile a part of the model."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    has_compiled = dynamo is not None and dynamo.counters["frames"]["ok"] > 0
    return has_compiled or any(hasattr(module, "_orig_mod") or module._compiled_call_impl for module in model.modules())
