"""Watched steps, their passes that are compared, the first call that differs, and why it does, of any framework."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.repeated_steps.differences import Call, Difference, Kind, OnDifference, Report, as_hex
from msprobe_hooks.messages import listed

Result = TypeVar("Result")

# A choice: how often a call is made again on the same inputs.
REPETITIONS: Final = 10

# A choice: of so many calls that differ, what is needed to find the cause is kept; undefined results are none.
MOST_PLACES: Final = 16


@dataclass(frozen=True, slots=True)
class Schedule:
    """The watched steps: a ``share`` of them, or one of each ``every``; in a watched step one micro batch is watched.

    The first steps, two by default, are never watched: libraries still choose kernels in them, and DDP its buckets.

    Raises ConfigError where not exactly one of both is given, or a number is out of range.
    """

    share: float | None = None
    every: int | None = None
    micro_batches: int = 1
    first_step: int = 0
    seed: int = 0
    unwatched: int = 2

    def __post_init__(self) -> None:
        if (self.share is None) == (self.every is None):
            problem = "replay_step() takes either share=, as 0.01, or every=, as 100"
            raise ConfigError("share", self.share, "", problem=problem)
        share = self.share
        if share is not None and not (type(share) in (int, float) and 0 < share <= 1):
            raise ConfigError("share", share, "a number above 0 and up to 1")
        if self.every is not None:
            _require_whole("every", self.every, 1)
        _require_whole("micro_batches", self.micro_batches, 1)
        _require_whole("first_step", self.first_step, 0)
        if type(self.seed) is not int:
            raise ConfigError("seed", self.seed, "a whole number")

    def step_of(self, call: int) -> int:
        """Return the step that a call, counted from 0, belongs to."""
        return self.first_step + call // self.micro_batches

    def place_of(self, call: int) -> tuple[int, int]:
        """Return the step and the micro batch of a call, counted from 0."""
        return self.step_of(call), call % self.micro_batches

    def is_watched(self, call: int) -> bool:
        """Return whether a call, counted from 0, is computed twice."""
        return self._watched_micro_batch(call) == call % self.micro_batches

    def is_watched_step(self, call: int) -> bool:
        """Return whether a call is computed twice in the step that this one belongs to."""
        return self._watched_micro_batch(call) is not None

    def _watched_micro_batch(self, call: int) -> int | None:
        step = self.step_of(call)
        if step < self.first_step + self.unwatched:
            return None
        draw = random.Random(f"{self.seed} {step}")
        is_watched = draw.random() < (self.share or 0.0) if self.every is None else step % self.every == 0
        return draw.randrange(self.micro_batches) if is_watched else None


def _require_whole(key: str, value: object, lowest: int) -> None:
    if type(value) is not int or value < lowest:
        raise ConfigError(key, value, f"a whole number from {lowest}")


@dataclass(frozen=True, slots=True)
class Origin:
    """Place where a call was made: the module's path, ``file:line`` of the program, and whether backward made it."""

    module: str
    source: str
    is_backward: bool

    def __str__(self) -> str:
        parts = ["backward"] if self.is_backward else []
        parts += [f"in {self.module}"] if self.module else []
        return ", ".join([*parts, self.source]) if self.source else ", ".join(parts)


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
    # In place of results of another shape nothing can be recorded.
    has_shapes = wrong is not None and [tuple(one.shape) for one in wrong] == [tuple(one.shape) for one in call.results]
    dump, wrong_dump = save(call, wrong if has_shapes else None)
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


def with_values(reason: str, values: Sequence[str], compared: str) -> str:
    """Return a reason with the values that differ between two passes, or that all that was ``compared`` is equal."""
    if not values:
        return f"{reason}; {compared} are equal"
    differ = "1 value differs" if len(values) == 1 else f"{len(values)} values differ"
    return f"{reason}; {differ}: {listed(values, 3)}"


def require_unchanged(before: dict[str, int], after: dict[str, int]) -> None:
    """Raise ConfigError for a function that has changed parameters, whose digests these are."""
    changed = [name for name, digest in before.items() if after.get(name) != digest]
    if changed:
        allowed = "only a forward and a backward pass; call the optimizer outside, not in the backward pass"
        problem = f"the function of replay_step() changes parameters ({listed(changed, 3)}); allowed: {allowed}"
        raise ConfigError("function", changed[0], allowed, problem=problem)


class WatchedSteps(ABC):
    """Runs a function that makes a forward and a backward pass: once, and in a watched step twice.

    ``report`` holds what was found until now.
    """

    def __init__(self, schedule: Schedule, folder: Path, on_difference: OnDifference, report: Report) -> None:
        self.report = report
        self._schedule = schedule
        self._folder = folder
        self._on_difference = on_difference
        self._count = 0
        # Results with memory that nothing is written to, by operator and place.
        self._undefined: set[tuple[Any, int]] = set()

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
        before = self._parameters()
        result = function()
        require_unchanged(before, self._parameters())
        return result

    def __str__(self) -> str:
        return str(self.report)

    def _watch(self, count: int, function: Callable[[], Result]) -> Result:
        report, earlier = self.report, len(self.report.differences)
        at, before = report.place(*self._schedule.place_of(count)), self._parameters()
        make, restore = self._passes(function, before, at)
        first, result = make()
        require_unchanged(before, self._parameters())
        # The graph of the first pass goes before the second is made.
        del result
        restore()
        second, result = make(first.calls)
        report.watched += 1
        report.calls = len(second.calls)
        calls = first.differing_calls(second, self._undefined)
        report.other_calls += first.first_other_call(second) is not None
        if self._any(bool(calls or first.differing(second)) or first.random.have_moved()):
            del result
            restore()
            third, result = make(captures=[*calls][:MOST_PLACES])
            self._explain(Passes(first, second, third, calls, report.not_seen), at)
            if self._any(not first.differing(second) and bool(first.differing(third))):
                # Training goes on with what two passes agree on.
                del result
                restore()
                _, result = make()
        report.finish(self._folder, earlier, self._on_difference)
        return result

    def _add(self, difference: Difference) -> None:
        self.report.differences.append(difference)

    @abstractmethod
    def _parameters(self) -> dict[str, int]:
        """Return the digests of the parameters, by name."""

    @abstractmethod
    def _passes(
        self, function: Callable[[], Result], before: dict[str, int], at: Callable[..., Difference]
    ) -> tuple[Callable[..., tuple[WatchedPass, Result]], Callable[[], None]]:
        """Return what makes a pass, and what puts its state back.

        A pass may be given the digests that are expected of its calls, or as ``captures`` the places of those to keep.
        """

    @abstractmethod
    def _any(self, condition: bool) -> bool:
        """Return whether a condition holds in any of the processes, each of which asks."""

    @abstractmethod
    def _explain(self, passes: Passes, at: Callable[..., Difference]) -> None:
        """Report why passes differ, in this process or in another one."""
