"""The search itself: which of many calls moves a number in another precision, and calls that were not raised.

Prefixes are searched. The number is as it was with no call raised and moved with all of them, so somewhere between two
prefixes that differ by one call it begins to be moved, and halving finds such a place whether or not the number moves
only once.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from msprobe_hooks.extensions.fix.run_plan import UNNAMED_LIBRARY, Left, library_of
from msprobe_hooks.recording.upcasts import Precision

# Of the whole movement: a call that moves less cannot be distinguished from the rounding of the others that are raised
# with it.
_SHARE = 0.1
# Of the number: 8 units in the last place of a float32, by which a loss moves where anything is rounded otherwise.
_ROUNDING = 2.0**-20

#: What to try where calls in a precision move nothing.
WIDER: Final[Mapping[Precision, str]] = {
    "float32": "--to float64 also raises float32",
    "float64": "there is no higher precision; --to cpu runs calls of a device with the kernels of the CPU",
    "cpu": "--to float64 also raises float32",
}

_SHOWN = 20


class Fixes(NamedTuple):
    """Selection of raised calls: those from ``start`` to before ``stop``, or all but those."""

    start: int
    stop: int
    is_inverted: bool = False

    def places(self, total: int) -> list[int]:
        """Return the places of the calls that are raised among so many."""
        inside = range(self.start, min(self.stop, total))
        return [place for place in range(total) if place not in inside] if self.is_inverted else list(inside)

    def describe(self, total: int) -> str:
        """Return which calls are raised, in words."""
        if self.stop - self.start == total:
            return f"all {total} calls" if total > 1 else "the one call"
        if self.is_inverted:
            return f"all calls but {self.stop}"
        if self.stop - self.start == 1:
            return f"call {self.stop} alone"
        return f"calls {self.start + 1} to {self.stop}"


#: Runs the command with some calls raised and returns its number.
Measure = Callable[[Fixes], float]


def distance(left: float, right: float) -> float:
    """Return how far two numbers are apart: none from NaN to NaN, infinitely far where only one of two is finite."""
    if left == right or (math.isnan(left) and math.isnan(right)):
        return 0.0
    return abs(left - right) if math.isfinite(left) and math.isfinite(right) else math.inf


def bound_for(plain: float, raised: float) -> float:
    """Return what a movement must exceed by default: a tenth of what all calls move the number by, and its rounding."""
    rounding = _ROUNDING * abs(plain) if math.isfinite(plain) else 0.0
    return min(max(_SHARE * distance(plain, raised), rounding), sys.float_info.max)


@dataclass(frozen=True, slots=True)
class Found:
    """The call at ``place``: raising it too takes the number, then moved by less, beyond the bound.

    ``alone`` is the number with only this call raised, ``without`` with all others; ``together`` is the number with
    those up to it, from the first.
    """

    place: int
    bound: float
    plain: float
    raised: float
    together: float
    alone: float
    without: float

    @property
    def moves_alone(self) -> bool:
        """Return whether raising this call alone moves the number beyond the bound."""
        return distance(self.alone, self.plain) > self.bound

    @property
    def has_others(self) -> bool:
        """Return whether raising all other calls moves the number beyond the bound as well."""
        return distance(self.without, self.plain) > self.bound


def search(total: int, plain: float, raised: float, measure: Measure, bound: float) -> Found | None:
    """Return the first call that moves the number beyond the bound, None where all calls together do not.

    ``plain`` is the number with no call raised, ``raised`` with all. Measures at most log2(total) + 3 times.
    """
    if distance(raised, plain) <= bound:
        return None
    below, beyond, together = 0, total, raised
    while beyond - below > 1:
        middle = (below + beyond) // 2
        number = measure(Fixes(0, middle))
        if distance(number, plain) > bound:
            beyond, together = middle, number
        else:
            below = middle
    # The number is known where no call is before this one, or none next to it.
    alone = together if below == 0 else measure(Fixes(below, beyond))
    without = plain if total == 1 else measure(Fixes(below, beyond, is_inverted=True))
    return Found(below, bound, plain, raised, together, alone, without)


def left_text(left: Sequence[Left], calls: Collection[str], namespaces: Sequence[str]) -> list[str]:
    """Return lines on what ran as it is in every run, and on libraries of ``namespaces`` without a call.

    ``calls`` are the calls that can be raised. There are no lines where there is nothing to say.
    """
    lines = [*_unmet_lines(left, calls, namespaces), *_left_lines(left)]
    if not lines:
        return []
    more = [f"  and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return ["Not raised, so not searched:", *lines[:_SHOWN], *more]


def _left_lines(left: Sequence[Left]) -> Iterator[str]:
    for each in left:
        if each.reason == UNNAMED_LIBRARY:
            yield f"  {each.api}: pass --custom-op-namespaces {library_of(each.api)}"
        else:
            yield f"  {each.api}: {each.reason}"


def _unmet_lines(left: Sequence[Left], calls: Collection[str], namespaces: Sequence[str]) -> Iterator[str]:
    met = {library_of(name) for name in (*calls, *(each.api for each in left))}
    for namespace in namespaces:
        if namespace not in met:
            yield f"  --custom-op-namespaces {namespace}: no operator of it with a result to change was called"
