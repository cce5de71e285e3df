"""Where a difference begins: the first call that differs, and whether a wrong call made its error or was given it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from msprobe_hooks.dump.call_context import modules_around
from msprobe_hooks.dump.names import is_forward
from msprobe_hooks.dump.paths.static_graph import KERNEL_LEVEL
from msprobe_hooks.errors import DumpError
from pytest_msprobe.modes.compare.judging.cancelled_values import CancelledValues
from pytest_msprobe.modes.compare.judging.fed_modules import InnerCulprits
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, Cause, ComparedCall, DataMode, Row

if TYPE_CHECKING:
    from msprobe_hooks.dump.fed_calls import FedCall
    from pytest_msprobe.modes.compare.matching.matching import Match, Matching

    Judge = Callable[[str, str, DataMode], list[Row]]
    IsEqual = Callable[[Match], bool]


class Culprits:
    """Finds the first call of a direction that differs, and from it the cause of each wrong call.

    ``mode`` is what the calls are compared by, ``search_mode`` what the first one is searched by: statistics where the
    dumps hold them, so that no tensor is read. ``judge`` gives the rows of two records, ``is_equal`` says whether a
    match needs no judging, ``arrived`` gives the judged gradients that those of parameters were made of, ``module_of``
    the module in which a call of the target was made. ``level`` is that of the dumps, ``fed`` are the calls of the
    target whose inputs were fed.
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
            given = [row for row in call.rows if row.group == "input" and row.differs]
            # Parameters that differ are its own, and so is what it makes of them. What was replaced and is still wrong
            # is the work of the code before it.
            if not given or any(row.place in places for row in given):
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
        first = next((place for each in directions if (place := self.first(each)) is not None), self._earliest)
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
    given = made = 0.0
    for row in rows:
        if row.group == "saved":
            # What went into it is not recorded.
            return "culprit"
        if row.group == "parameters_grad":
            # What went into these sums is in no record of its own.
            return "inherited"
        error = row.metrics.get(SCALED_ERROR, math.inf if row.outcome == "fail" else 0.0)
        if row.group == "output":
            made = max(made, error)
        else:
            given = max(given, error)
    return "culprit" if made > given * inherited else "inherited"
