"""Why the passes of a step differ: which call is the first, and whether the card or the function is the cause."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from msprobe_hooks.extensions.repeated_steps.call_digests import CallDigests, first_other_call
from msprobe_hooks.extensions.repeated_steps.differences import Call, Kind, as_hex
from msprobe_hooks.extensions.repeated_steps.differing_call import REPETITIONS, CallCapture, DifferingCall
from msprobe_hooks.extensions.repeated_steps.watched_pass import WatchedPass

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
    """What kind of difference it is, in words, with the pass that is odd and the call if they are known."""

    kind: Kind
    reason: str
    odd_pass: int | None = None
    call: Call | None = None


def located(passes: Passes, undefined: set[tuple[Any, int]]) -> Located:
    """Return the first call that differs, other than in memory that it has not written to; that is added."""
    seen, capture = passes.second.seen, passes.third.seen
    if seen is None or not isinstance(capture, CallCapture):
        return Located(None, None, NOWHERE)
    for place, results in [*passes.calls.items()][:MOST_PLACES]:
        call = capture.captured.get(place)
        if call is not None and results:
            undefined.update((call.operator, number) for number in call.undefined_results() & results)
            results = {number for number in results if (call.operator, number) not in undefined}
        if call is None or results:
            return Located(place, call, seen.communications_before(place))
    return Located(None, None, NOWHERE)


def received() -> Explanation:
    """Return the explanation for a process that has computed with what another one sent."""
    return Explanation("received", "the passes differ in what another rank has computed")


def explained(passes: Passes, found: Located, save: Callable[[DifferingCall], str | None]) -> Explanation:
    """Return why a step differs that began to in this process; ``save`` records a call and returns the folder."""
    if found.place is None:
        return _without_call(passes)
    first, second, third = passes.first, passes.second, passes.third
    place, call = found.place, found.call
    digests = tuple(each.calls[place] if place < len(each.calls) else () for each in (first, second, third))
    name, odd = _name_of(second.seen, place), _odd_pass(*digests)
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
        digests=[as_hex(each) for each in digests],
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
    seen, calls = passes.second.seen, passes.second.differing_calls(passes.third, undefined)
    place = min(calls, default=None)
    name = "no call that was seen" if place is None else f"{_name_of(seen, place)} (call {place})"
    return Explanation("wrong", f"{name}: pass 3 of 3 differs from the others, and its inputs were not kept", 3)


def _without_call(passes: Passes) -> Explanation:
    first, second, third = passes.first, passes.second, passes.third
    if first.seen is not None and second.seen is not None:
        other = first_other_call(first.seen, second.seen)
        if other is not None:
            made = [_name_of(each.seen, other) for each in (first, second)]
            return Explanation("not_repeatable", f"the first pass calls {made[0]} where the second calls {made[1]}")
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


def _name_of(seen: CallDigests | None, place: int) -> str:
    return "nothing" if seen is None or place >= len(seen.operators) else str(seen.operators[place])
