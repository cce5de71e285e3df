"""Differences between repeated steps, with their causes, as text and as JSON."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from msprobe_hooks.dump.recording_paths import recording_folder
from msprobe_hooks.dump.writer import make_folder, write_error
from msprobe_hooks.errors import ConfigError, DifferingStepError, RecordingError
from msprobe_hooks.messages import counted, listed
from msprobe_hooks.recording.recorder import Recorder

if TYPE_CHECKING:
    from msprobe_hooks.extensions.repeated_steps.replaying import Schedule

_log = logging.getLogger("msprobe_hooks")

OnDifference = Literal["warn", "stop"]
Kind = Literal["wrong", "nondeterministic", "not_repeatable", "received", "replicas"]


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """The first call of a step whose passes differ; ``number`` counts from 0 in the order of the pass.

    ``digests`` are those of its results in the passes, as 16 hexadecimal digits. ``repetitions`` were made of it on
    the same inputs, of which ``differing`` gave other bits than the third pass. ``dump`` is a recording of it, and
    ``wrong_dump`` one that has the results of the odd pass; ``wrong_values`` says in words what these are.
    """

    number: int
    count: int
    operator: str
    module: str = ""
    source: str = ""
    is_backward: bool = False
    digests: list[list[str]] = []
    repetitions: int = 0
    differing: int = 0
    dump: str | None = None
    wrong_dump: str | None = None
    wrong_values: str = ""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A step whose passes, or whose ranks, differ.

    ``kind`` is ``wrong`` (a fault of this card), ``nondeterministic`` (torch documents the operator as such),
    ``not_repeatable`` (the function does something else each time), ``received`` (another rank's fault) or
    ``replicas`` (parameters of data-parallel ranks differ). ``odd_pass`` is the pass that the other two disagree with,
    counted from 1. ``values`` name what differs: the result, gradients, buffers; of the step of an ``optimizer``, by
    its class, parameters and state.
    """

    kind: Kind
    step: int
    micro_batch: int
    rank: int | None
    host: str
    card: str
    reason: str
    values: list[str]
    odd_pass: int | None = None
    odd_ranks: list[int] = []
    call: Call | None = None
    optimizer: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"

    @property
    def place(self) -> str:
        """Return the step, the rank and the card in words."""
        rank = "" if self.rank is None else f" on rank {self.rank}"
        return f"step {self.step}{rank} ({self.card} of {self.host})"

    @property
    def summary(self) -> str:
        """Return the kind of the difference and where it begins, in a few words."""
        place = f"optimizer {self.optimizer}" if self.optimizer else self.call.operator if self.call else ""
        return f"{self.kind}, {place}" if place else self.kind


class Report(msgspec.Struct, kw_only=True):
    """Outcome of the repeated steps of one process: how many were watched, and what differs.

    ``undefined`` names operators with a result that is not compared, because they do not write to all of its memory.
    ``other_calls`` counts the steps whose passes make other calls from some place on, where no more are compared.
    ``not_seen`` says why no calls are compared, if none are. ``optimizer_steps`` counts the steps of optimizers that
    were computed twice; None where no optimizer was passed. ``replicas_not_seen`` says why parameters are not compared
    over ranks, if they are not. ``closures`` counts those that compute gradients.
    """

    rank: int | None
    host: str
    card: str
    watched: int = 0
    calls: int = 0
    undefined: list[str] = []
    other_calls: int = 0
    not_seen: str = ""
    compares_replicas: bool = False
    replicas_not_seen: str = "no data-parallel group"
    optimizer_steps: int | None = None
    closures: int = 0
    differences: list[Difference] = []

    def write(self, folder: Path) -> None:
        """Write the report into ``folder/repeats{rank}.json``, over the former one. Raises RecordingError."""
        make_folder(folder)
        path = self.file(folder)
        part = path.with_name(f"{path.name}.part")
        try:
            part.write_bytes(msgspec.json.format(msgspec.json.encode(self)) + b"\n")
            part.replace(path)
        except OSError as error:
            raise write_error(path, "written", error) from None

    def finish(self, folder: Path, earlier: int, on_difference: OnDifference) -> None:
        """Write the report, and log what was found since there were so many differences.

        Raises DifferingStepError for it where that is asked for, RecordingError where the disk refuses.
        """
        self.write(folder)
        differences = self.differences[earlier:]
        for difference in differences:
            _log.warning("%s: %s; %s", difference.place, difference.summary, self.file(folder))
        if differences and on_difference == "stop":
            raise DifferingStepError("; ".join(map(str, differences)))

    def place(self, schedule: Schedule, count: int) -> Callable[..., Difference]:
        """Return what makes the differences of a call of the function, counted from 0."""
        return partial(
            Difference,
            step=schedule.step_of(count),
            micro_batch=count % schedule.micro_batches,
            rank=self.rank,
            host=self.host,
            card=self.card,
        )

    def file(self, folder: Path) -> Path:
        """Return the file of this process."""
        return folder / f"repeats{'' if self.rank is None else self.rank}.json"

    def __str__(self) -> str:
        result = counted(len(self.differences), "difference") if self.differences else "no difference"
        calls = f", {counted(self.calls, 'call')} in the last" if self.calls else ""
        lines = [f"repeated steps: {counted(self.watched, 'step')} computed twice{calls}: {result}"]
        lines += [f"  calls not compared: {self.not_seen}"] if self.not_seen else []
        lines.append(f"  {self._optimizer_line()}")
        lines += [] if self.compares_replicas else [f"  parameters not compared over ranks: {self.replicas_not_seen}"]
        if self.other_calls:
            lines.append(f"  compared up to the first other call: the passes of {counted(self.other_calls, 'step')}")
        lines += [f"  memory left undefined by: {listed(self.undefined)}"] if self.undefined else []
        return "\n".join([*lines, *(f"  {difference}" for difference in self.differences)])

    def _optimizer_line(self) -> str:
        if self.optimizer_steps is None:
            return "optimizer not compared: not passed, as in replay_step(model, optimizer=optimizer)"
        closures = f"; not compared: {counted(self.closures, 'step')} with a closure" if self.closures else ""
        return f"optimizer: {counted(self.optimizer_steps, 'step')} computed twice{closures}"


def as_hex(digests: tuple[int, ...]) -> list[str]:
    """Return digests as 16 hexadecimal digits each."""
    return [f"{number % 2**64:016x}" for number in digests]


@dataclass(frozen=True, slots=True)
class WatchedPass:
    """The digests of a pass by name, as of the function's result, gradients and buffers, and those of its calls.

    ``collector`` has the ``operators`` of the calls, and kept ``results`` by their places; None where no call is seen.
    ``random`` are the states of the generators afterwards.
    """

    values: dict[str, int]
    collector: Any
    calls: list[tuple[int, ...]]
    random: Any

    def differing(self, other: WatchedPass) -> list[str]:
        """Return the names of what differs in another pass."""
        mine, others = self.values, other.values
        return [name for name in {**mine, **others} if mine.get(name) != others.get(name)]

    def first_other_call(self, other: WatchedPass) -> int | None:
        """Return the place of the first operator that another pass does not make; None if there is none to see."""
        if self.collector is None or other.collector is None:
            return None
        one, two = self.collector.operators, other.collector.operators
        first = next((place for place, (a, b) in enumerate(zip(one, two, strict=False)) if a is not b), None)
        return min(len(one), len(two)) if first is None and len(one) != len(two) else first

    def differing_calls(self, other: WatchedPass, left_out: Container[tuple[Any, int]]) -> dict[int, set[int]]:
        """Return which results of which calls differ in another pass, by the places of the calls.

        Until they make other calls, and without the results that are ``left_out`` by operator and place.
        """
        differing_results: dict[int, set[int]] = {}
        if self.calls == other.calls or self.collector is None or other.collector is None:
            return differing_results
        operators = zip(self.collector.operators, other.collector.operators, strict=False)
        for place, (operator, of_other) in enumerate(operators):
            mine, others = self.calls[place], other.calls[place]
            if operator is not of_other:
                break
            if mine != others:
                results = (number for number, (a, b) in enumerate(zip(mine, others, strict=False)) if a != b)
                differing = {number for number in results if (operator, number) not in left_out}
                if differing or len(mine) != len(others):
                    differing_results[place] = differing
        return differing_results


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
    """The first call that differs: its place, itself, and whether that is due to what another process sent before.

    ``call`` is what makes it again, as `DifferingCall` for torch.
    """

    place: int | None = None
    call: Any = None
    is_received: bool = False

    @property
    def is_origin(self) -> bool:
        """Return whether this process has computed the difference."""
        return self.place is not None and not self.is_received


def save_case(
    place: Difference,
    call: Any,
    wrong: Sequence[Any] | None,
    folder: Path,
    part: str,
    open_recorder: Callable[[Path], Recorder],
) -> tuple[str | None, str | None]:
    """Record a repetition of a call with its tensors, and one that has the ``wrong`` results; return their folders.

    They are ``folder`` and another next to it, not inside, where a check of all calls would find what is wrong by
    intent; ``part`` is a folder in both. None, with a warning, where a recording is not possible.
    """

    def recorded(into: Path, results: Sequence[Any] | None) -> str | None:
        try:
            recorder = open_recorder(into)
            recorder.step = place.step
            recorder.start(place.rank)
            try:
                call.record(recorder, results)
            finally:
                recorder.close()
        except (RecordingError, ConfigError) as error:
            _log.warning("the call is not saved: %s", error)
            return None
        return str(into / recording_folder(place.step, place.rank)) if recorder.summary.calls else None

    right = recorded(folder / part, None)
    if right is None or wrong is None:
        return right, None
    return right, recorded(folder.with_name(f"{folder.name}-wrong") / part, wrong)


#: Records a call, and as a second recording the wrong results if they are known; returns the folders.
Save = Callable[[Any, Sequence[Any] | None], tuple[str | None, str | None]]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Kind of a difference, in words, with the pass that is odd and the call if they are known."""

    kind: Kind
    reason: str
    odd_pass: int | None = None
    call: Call | None = None


def received() -> Explanation:
    """Return the explanation for a process that has computed with what another one sent."""
    return Explanation("received", "the passes differ in what other ranks have sent")


def explained(passes: Passes, position: Located, save: Save) -> Explanation:
    """Return why a step differs that began to in this process; ``save`` records the call."""
    if position.place is None:
        return _without_call(passes)
    first, second, third = passes.first, passes.second, passes.third
    place, call = position.place, position.call
    digests = tuple(one_pass.calls[place] if place < len(one_pass.calls) else () for one_pass in (first, second, third))
    name, odd = _name_of(second.collector, place), odd_pass(*digests)
    words = f"{name} (call {place} of {len(second.calls)})"
    if call is None and place < len(third.calls):
        record = Call(number=place, count=len(second.calls), operator=name, digests=[as_hex(one) for one in digests])
        return Explanation("not_repeatable" if odd is None else "wrong", f"{words}: {_in_words(odd)}", odd, record)
    if call is None:
        return Explanation("not_repeatable", f"{words}: the third pass does not make it", odd)
    differing = call.differing_repetitions(digests[2])
    is_nondeterministic = call.is_nondeterministic(differing)
    wrong = _wrong_results(passes, place, odd)
    dump, wrong_dump = save(call, wrong)
    wrong_values = "" if odd is None else call.in_words(wrong, digests[odd - 1], digests[2])
    origin = call.origin
    record = Call(
        number=place,
        count=len(second.calls),
        operator=name,
        module=origin.module,
        source=origin.source,
        is_backward=origin.is_backward,
        digests=[as_hex(digest) for digest in digests],
        repetitions=call.repetitions,
        differing=differing,
        dump=dump,
        wrong_dump=wrong_dump,
        wrong_values=wrong_values,
    )
    words = f"{words} {origin}" if str(origin) else words
    repetitions = f"{differing} of {call.repetitions} repetitions on the same inputs differ"
    if is_nondeterministic:
        reason = f"{words}: {call.advice}; nothing after it was compared"
        return Explanation("nondeterministic", reason, odd, record)
    if odd is None and not differing:
        reason = f"{words}: each pass gives it other inputs, {repetitions}"
        return Explanation("not_repeatable", reason, odd, record)
    values = f"; {wrong_values}" if wrong_values else ""
    saved = "" if dump is None else f"; saved: pytest --msprobe-dump {dump} --msprobe-repeat 100"
    if wrong_dump is not None:
        saved += f", wrong values: pytest --msprobe-compare {wrong_dump} --msprobe-golden {dump}"
    return Explanation("wrong", f"{words}: {_in_words(odd)}, {repetitions}{values}{saved}", odd, record)


def _wrong_results(passes: Passes, place: int, odd: int | None) -> Sequence[Any] | None:
    """Return what a call computed in the odd pass of the first two, if it was kept."""
    one_pass = None if odd is None else (passes.first, passes.second)[odd - 1]
    return None if one_pass is None or one_pass.collector is None else one_pass.collector.results.get(place)


def explained_third(passes: Passes, undefined: set[tuple[Any, int]]) -> Explanation:
    """Return why the third pass, which was made for another reason, differs from the first two."""
    digests, calls = passes.second.collector, passes.second.differing_calls(passes.third, undefined)
    place = min(calls, default=None)
    name = "no call that was seen" if place is None else f"{_name_of(digests, place)} (call {place})"
    return Explanation("wrong", f"{name}: pass 3 of 3 differs from the others, and its inputs were not kept", 3)


def _without_call(passes: Passes) -> Explanation:
    first, second, third = passes.first, passes.second, passes.third
    other = first.first_other_call(second)
    if other is not None:
        names = [_name_of(one_pass.collector, other) for one_pass in (first, second)]
        return Explanation("not_repeatable", f"the first pass calls {names[0]} where the second calls {names[1]}")
    if not first.differing(second):
        return Explanation("not_repeatable", "the passes draw different random numbers")
    odd = odd_pass(first.values, second.values, third.values)
    why = f"calls not compared: {passes.not_seen}" if passes.not_seen else "no call that was seen differs"
    return Explanation("not_repeatable" if odd is None else "wrong", f"{_in_words(odd)} ({why})", odd)


def odd_pass(first: object, second: object, third: object) -> int | None:
    """Return which of three passes the other two disagree with, counted from 1; None where all three differ."""
    if third == first:
        return 2
    return 1 if third == second else None


def _in_words(odd: int | None) -> str:
    return "all three passes differ" if odd is None else f"pass {odd} of 3 differs from the others"


def _name_of(digests: Any, place: int) -> str:
    return "nothing" if digests is None or place >= len(digests.operators) else str(digests.operators[place])
