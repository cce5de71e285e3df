"""What comes of sums that cancel, as later calls are given it: a call that passes it on has made no error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_msprobe.modes.compare.judging.cancelled_sums import excused, is_cancelled
from pytest_msprobe.modes.compare.judging.optimizer_steps import is_step_of_rounding
from pytest_msprobe.modes.compare.judging.term_scales import size_of
from pytest_msprobe.modes.compare.measure.float_dtypes import float_dtype
from pytest_msprobe.modes.compare.rows import EXPLAINED_ERROR, SCALED_ERROR, TERMS_ERROR, Row

# An error that is smaller than this is one of numbers that share their first digit; of others the size says more.
_SMALL = 0.1


@dataclass(frozen=True, slots=True)
class _Origin:
    """How far a sum that cancels may be apart as a fraction of itself, and the largest number among its terms."""

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
            given = [row for row in rows if row.group in ("input", "parameters_grad")]
            terms = [self._origins[key].largest for row in given if (key := _key(row)) in self._origins]
            largest = max((*map(_largest, given), *terms), default=0.0)
            for row in excused:
                self._add(row, _Origin(max(map(row.metrics.get, (SCALED_ERROR, EXPLAINED_ERROR), (0.0, 0.0))), largest))

    @property
    def are_known(self) -> bool:
        """Whether any value of the runs cancels."""
        return bool(self._origins)

    def excused(self, record: str, rows: list[Row], arrived: Sequence[Row] = ()) -> list[Row]:
        """Return judged rows with those excused that follow from sums that cancel, and remember the outputs.

        ``arrived`` is what the gradients of parameters were made of, which another record holds.
        """
        given = [row for row in (*arrived, *rows) if row.group in ("input", "parameters")]
        made = [row for row in rows if row.group not in ("input", "parameters")]
        known = {id(row): origin for row in (*given, *made) if (origin := self._origins.get(_key(row))) is not None}
        if not known or any(id(row) not in known for row in given if row.differs):
            return rows
        entered = [known[id(row)] for row in given if id(row) in known]
        wrong = [row for row in made if row.differs and id(row) not in known]
        origin = max(entered or known.values(), key=lambda each: each.error)
        if wrong and not (entered and all(self._may_follow(record, row, rows, origin) for row in wrong)):
            return rows
        if entered:
            for row in made:
                if (error := row.metrics.get(SCALED_ERROR)) and id(row) not in known:
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
            known = self._origins.setdefault(key, origin)
            if known.largest < origin.largest:
                # The gradients of parameters name no terms, the call that made them does.
                self._origins[key] = origin


def _largest(row: Row) -> float:
    """Return the largest number of a row's tensors, by their statistics; inf where it is not known."""
    values = [value for value in (row.target, row.golden) if value is not None and value.is_tensor]
    sizes = [size_of(value) for value in values if float_dtype(value.dtype)]
    return max((math.inf if size is None else size.largest for size in sizes), default=0.0)


def _key(row: Row) -> tuple[object, object]:
    return tuple(None if value is None else value.statistics for value in (row.target, row.golden))  # type: ignore[return-value]
