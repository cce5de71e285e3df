"""Culprits: the first call that differs, with its own error or a received one; rounding alone passed on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from msprobe_hooks.dump.call_context import modules_around
from msprobe_hooks.dump.names import float_dtype, is_forward, split_called
from msprobe_hooks.dump.recording_paths import KERNEL_LEVEL
from msprobe_hooks.dump.values import Value
from msprobe_hooks.errors import DumpError
from pytest_msprobe.modes.compare.judging.cancelled_sums import distance, excused, is_cancelled
from pytest_msprobe.modes.compare.judging.fed_modules import InnerCulprits
from pytest_msprobe.modes.compare.judging.term_kinds import STEPS
from pytest_msprobe.modes.compare.judging.term_scales import PlacedValues, count_of, last_word, number_at, size_of
from pytest_msprobe.modes.compare.rows import (
    EXPLAINED_ERROR,
    SCALED_ERROR,
    TERMS_ERROR,
    Cause,
    ComparedCall,
    DataMode,
    Row,
)

if TYPE_CHECKING:
    from msprobe_hooks.dump.fed_calls import FedCall
    from pytest_msprobe.modes.compare.matching.matches import Match, Matching

    Judge = Callable[[str, str, DataMode], list[Row]]
    IsEqual = Callable[[Match], bool]

#: Gives how far a call moves an element by what it was given and how uneven it may be; None where unknown.
StepSize: TypeAlias = Callable[[PlacedValues, float], "float | None"]


def is_step_of_rounding(record: str, row: Row, rows: Sequence[Row], *, share: float, spread: float) -> bool | None:
    """Return whether an output is no further apart than the steps that two runs made of rounding; None for no step.

    What differs among the inputs may differ by ``share`` of itself. Where a step is known on average only, an element
    of it may be ``spread`` times as large.
    """
    word = last_word(split_called(record)[0])
    number = row.place.rpartition(".")[2] if word.startswith(("foreach", "fused")) else ""
    step = _STEPS.get(word.removeprefix("foreach"))
    inputs = {
        place: candidate for candidate in rows if candidate.group == "input" and (place := _place(candidate, number))
    }
    differing = {place for place, candidate in inputs.items() if candidate.differs}
    apart = distance(row)
    if step is None or apart is None or row.target is None or not _is_moved(word, row, differing):
        return None
    sizes = [
        step({place: value for place, value in side.items() if value is not None}, spread)
        for side in (
            {place: candidate.target for place, candidate in inputs.items()},
            {place: candidate.golden for place, candidate in inputs.items()},
        )
    ]
    if None in sizes:
        return None
    limit = sum(size for size in sizes if size is not None) * (1.0 if word == "sign" else min(share, 1.0))
    return apart[0] <= limit and apart[1] <= limit * math.sqrt(count_of(row.target))


def _is_moved(word: str, row: Row, differing: set[str]) -> bool:
    """Return whether an output is what both runs move from one place, or a quotient or sign of what differs."""
    if word.startswith("fused"):
        # Its first list of tensors are the parameters, the next ones gradients and averages of them.
        return row.place.startswith("output.0.") and "input.0" not in differing
    return "input.0" not in differing or word.endswith(("truediv", "realdiv", "div", "sign"))


def _place(row: Row, number: str) -> str:
    """Return the place of an argument; of lists of tensors that of the tensor with a number, empty for the others."""
    if not number or row.place.count(".") < 2:
        return row.place
    head, _, last = row.place.rpartition(".")
    return head if last == number else ""


def _of_addition(values: PlacedValues, spread: float) -> float | None:
    size = size_of(values.get("input.1"))
    return None if size is None else size.largest * abs(number_at(values, "input.alpha", 1.0))


def _of_division(values: PlacedValues, spread: float) -> float | None:
    return _ratio(values.get("input.0"), values.get("input.1"), spread)


def _of_added_division(values: PlacedValues, spread: float) -> float | None:
    ratio = _ratio(values.get("input.1"), values.get("input.2"), spread)
    factor = number_at(values, "input.value", number_at(values, "input.3", 1.0))
    return None if ratio is None else ratio * abs(factor)


def _ratio(part: Value | None, whole: Value | None, spread: float) -> float | None:
    sizes = size_of(part), size_of(whole)
    if sizes[0] is None or sizes[1] is None or not sizes[1].norm:
        return None
    return spread * sizes[0].norm / sizes[1].norm


def _of_adam(values: PlacedValues, spread: float) -> float | None:
    rate = number_at(values, "input.lr", math.nan)
    return None if math.isnan(rate) else spread * abs(rate)


#: Sizes of the kinds of steps that a row of an operation may name.
SIZES: Mapping[str, StepSize] = {
    "addition": _of_addition,
    "quotient": _of_division,
    "added_quotient": _of_added_division,
    "sign": lambda values, spread: 1.0,
    "adam": _of_adam,
}
# MindSpore's optimizers assign what they add.
_STEPS: Mapping[str, StepSize] = {
    **{last_word(name): SIZES[kind] for kind, names in STEPS.items() for name in names},
    "assignadd": _of_addition,
    "assignsub": _of_addition,
    "realdiv": _of_division,
}


# An error that is smaller than this is one of numbers that share their first digit; of others the size says more.
_SMALL = 0.1


@dataclass(frozen=True, slots=True)
class _Origin:
    """Allowed distance of a sum that cancels as a fraction of itself, and the largest number among its terms."""

    error: float
    largest: float


class CancelledValues:
    """The values of two runs that cancel, or follow from those that do.

    A value goes by its numbers on both sides. What follows is ``inherited`` times as far apart as the sum, at most, and
    no larger than the terms of the sum where that share says nothing; or an optimizer made a step of it.
    """

    def __init__(self, inherited: float) -> None:
        self._inherited = inherited
        self._origins: dict[tuple[object, object], _Origin] = {}

    def note(self, rows: Sequence[Row]) -> None:
        """Remember the results of a call that are excused by its own terms."""
        excused = [row for row in rows if row.group in ("output", "parameters_grad") and is_cancelled(row)]
        if excused:
            # What they are made of may come of a sum that cancels, too.
            inputs = [row for row in rows if row.group in ("input", "parameters_grad")]
            terms = [self._origins[key].largest for row in inputs if (key := _key(row)) in self._origins]
            largest = max((*map(_largest, inputs), *terms), default=0.0)
            for row in excused:
                self._add(row, _Origin(max(map(row.metrics.get, (SCALED_ERROR, EXPLAINED_ERROR), (0.0, 0.0))), largest))

    @property
    def are_known(self) -> bool:
        """Return whether any value of the runs cancels."""
        return bool(self._origins)

    def excused(self, record: str, rows: list[Row], arrived: Sequence[Row] = ()) -> list[Row]:
        """Return judged rows with those excused that follow from sums that cancel, and remember the outputs.

        ``arrived`` is what the gradients of parameters were made of, which another record holds.
        """
        inputs = [row for row in (*arrived, *rows) if row.group in ("input", "parameters")]
        results = [row for row in rows if row.group not in ("input", "parameters")]
        origins = {
            id(row): origin for row in (*inputs, *results) if (origin := self._origins.get(_key(row))) is not None
        }
        if not origins or any(id(row) not in origins for row in inputs if row.differs):
            return rows
        entered = [origins[id(row)] for row in inputs if id(row) in origins]
        wrong = [row for row in results if row.differs and id(row) not in origins]
        origin = max(entered or origins.values(), key=lambda candidate: candidate.error)
        if wrong and not (entered and all(self._may_follow(record, row, rows, origin) for row in wrong)):
            return rows
        if entered:
            for row in results:
                if (error := row.metrics.get(SCALED_ERROR)) and id(row) not in origins:
                    # A gradient that is usual here may be unusual in the next call; of itself it is no further apart.
                    self._add(row, origin if row.differs else replace(origin, error=min(origin.error, error)))
        return [excused(row) if row.differs else row for row in rows]

    def _may_follow(self, record: str, row: Row, rows: Sequence[Row], origin: _Origin) -> bool:
        if row.unmeasured:
            return False
        limit = self._inherited * origin.error
        is_step = is_step_of_rounding(record, row, rows, share=limit, spread=self._inherited)
        if is_step is not None:
            return is_step
        is_small = limit < _SMALL or _largest(row) <= origin.largest
        error = row.metrics.get(SCALED_ERROR, math.inf) if is_small else math.inf
        return error <= limit or row.metrics.get(TERMS_ERROR, math.inf) <= min(limit, _SMALL)

    def _add(self, row: Row, origin: _Origin) -> None:
        key = _key(row)
        if None not in key:
            present = self._origins.setdefault(key, origin)
            if present.largest < origin.largest:
                # The gradients of parameters name no terms, the call that made them does.
                self._origins[key] = origin


def _largest(row: Row) -> float:
    """Return the largest number of a row's tensors, by their statistics; inf where it is not known."""
    values = [value for value in (row.target, row.golden) if value is not None and value.is_tensor]
    sizes = [size_of(value) for value in values if float_dtype(value.dtype)]
    return max((math.inf if size is None else size.largest for size in sizes), default=0.0)


def _key(row: Row) -> tuple[object, object]:
    return tuple(None if value is None else value.statistics for value in (row.target, row.golden))  # type: ignore[return-value]


class Culprits:
    """Finds the first call of a direction that differs, and from it the cause of each wrong call.

    ``mode`` is what the calls are compared by, ``search_mode`` what the first one is searched by: statistics where the
    dumps hold them, so that no tensor is read. ``judge`` gives the rows of two records, ``is_equal`` says whether a
    match needs no judging, ``arrived`` gives the judged gradients that those of parameters were made of, ``module_of``
    the module in which a call of the target was made. ``level`` is that of the dumps, ``fed`` are the calls of the
    target whose inputs were fed. Where the third of five calls is the first that differs::

        _matches      add   mul   linear   relu   sum
        _agreeing      1     1      0       0      0      compared by ``mode``, without a difference
        _first        {True: 2}                           True: of forward calls, False: of backward ones
        _searched_to  3                                   those from here on have not been looked at
    """

    def __init__(
        self,
        matching: Matching,
        *,
        mode: DataMode,
        search_mode: DataMode,
        level: str,
        inherited: float,
        judge: Judge,
        is_equal: IsEqual,
        arrived: Callable[[Match], list[Row]],
        module_of: Callable[[str], str],
        fed: Mapping[str, FedCall],
    ) -> None:
        self._matches = matching.matches
        self._searches_results = mode == search_mode
        self._search_mode = search_mode
        self._level = level
        self._inherited = inherited
        self._judge = judge
        self._is_equal = is_equal
        self._arrived = arrived
        self._module_of = module_of
        self._fed = fed
        self._first: dict[bool | None, int] = {}
        self._cancelled = CancelledValues(inherited)
        self._searched_to = 0
        self._earliest = len(matching.matches)
        # The places of calls that were compared by their own mode and do not differ.
        self._agreeing = bytearray(len(matching.matches))

    def note_agreement(self, order: int) -> None:
        """Remember that the call in a place was compared and does not differ."""
        self._agreeing[order] = 1

    def excused(self, order: int, rows: list[Row]) -> list[Row]:
        """Return the judged rows of a call in a place, less what follows from sums that cancel.

        After the first call that differs for another reason, what follows from what is not known.
        """
        first = self.first(self._direction(self._matches[order].target or ""))
        return rows if first is not None and order >= first else self._without_cancelled(order, rows)

    def _without_cancelled(self, order: int, rows: list[Row]) -> list[Row]:
        record = self._matches[order].target or ""
        arrived = self._arrived(self._matches[order]) if any(row.differs for row in rows) else []
        return self._cancelled.excused(record, rows, arrived)

    def _direction(self, record: str) -> bool | None:
        # Kernels of a graph follow each other whatever their direction.
        return None if self._level == KERNEL_LEVEL else is_forward(record)

    def cause(self, call: ComparedCall) -> Cause:
        """Return what the error of a wrong call comes from."""
        first = self.first(self._direction(call.record))
        if first is not None and call.order <= first:
            self._earliest = min(self._earliest, call.order)
            return "culprit"
        if first is not None and call.record in modules_around(self._matches[first].target or "", self._module_of):
            return "inherited"
        if self._fed and self._inner.are_in(call.record):
            return "inherited"
        if call.record in self._fed:
            places = self._fed[call.record].places
            differing = [row for row in call.rows if row.group == "input" and row.differs]
            # Parameters that differ are its own, and so is what it makes of them. What was replaced and is still wrong
            # is the work of the code before it.
            if not differing or any(row.place in places for row in differing):
                return "culprit"
        return _cause_of(call.rows, self._inherited)

    @cached_property
    def _inner(self) -> InnerCulprits:
        return InnerCulprits(self._matches, self._searched, self._module_of)

    def _searched(self, target: str, golden: str) -> list[Row]:
        return self._judge(target, golden, self._search_mode)

    def first_name(self) -> str:
        """Return the item of the first call that differs, as far as it is known; empty where none is."""
        directions = (None,) if self._level == KERNEL_LEVEL else (True, False)
        first = next((place for forward in directions if (place := self.first(forward)) is not None), self._earliest)
        first = min(first, self._earliest)
        return self._matches[first].item_name if first < len(self._matches) else ""

    def first(self, forward: bool | None) -> int | None:
        """Return the place of the first call of a direction (None: of any) that differs, None where none does."""
        # In one walk over both: an optimizer is given what a backward call made.
        while forward not in self._first and self._searched_to < len(self._matches):
            order = self._searched_to
            self._searched_to += 1
            record = self._matches[order].target
            if record is None:
                continue
            direction = self._direction(record)
            if direction not in self._first and self._differs(order):
                self._first[direction] = order
        return self._first.get(forward)

    def _agrees(self, order: int) -> bool:
        # A call that agrees may pass on what cancels.
        return self._searches_results and bool(self._agreeing[order]) and not self._cancelled.are_known

    def _differs(self, order: int) -> bool:
        match = self._matches[order]
        if match.target is None or match.golden is None or self._agrees(order):
            return False
        try:
            if self._is_equal(match):
                return False
            judged = self._judge(match.target, match.golden, self._search_mode)
        except DumpError:
            return False
        rows = self._without_cancelled(order, judged)
        self._cancelled.note(rows)
        return any(row.differs for row in rows)


def _cause_of(rows: Iterable[Row], inherited: float) -> Cause:
    """Return whether a wrong call's outputs are worse than what its inputs explain."""
    input_error = output_error = 0.0
    for row in rows:
        if row.group == "saved":
            # What went into it is not recorded.
            return "culprit"
        if row.group == "parameters_grad":
            # What went into these sums is in no record of its own.
            return "inherited"
        error = row.metrics.get(SCALED_ERROR, math.inf if row.outcome == "fail" else 0.0)
        if row.group == "output":
            output_error = max(output_error, error)
        else:
            input_error = max(input_error, error)
    return "culprit" if output_error > input_error * inherited else "inherited"
