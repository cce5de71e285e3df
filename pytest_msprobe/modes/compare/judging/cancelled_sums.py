"""Sums that cancel: a result that is small against its terms is judged by the scale of the terms.

Two runs whose terms differ by what their dtype makes likely may have results that share no digit. How far these may be
apart follows from the terms, where they are recorded: a kernel of a graph records them, and a forward call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from msprobe_hooks.dump.names import is_backward_api, split_called
from pytest_msprobe.modes.compare.measure.float_dtypes import coarser, float_dtype
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, Row

if TYPE_CHECKING:
    from msprobe_hooks.dump.values import Value

UNIT_ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}
#: How many roundings of its terms a sum may be off by; kernels add a few before.
ROUNDINGS = 8.0
MESSAGE = "a sum that cancels: no further apart than its terms explain"

_ADDED = frozenset("add addn sub subtract rsub iadd radd isub biasadd tensoradd lerp addcmul addcdiv".split())
_SUMMED = frozenset("sum reducesum sumext nansum biasaddgrad segmentsum unsortedsegmentsum".split())
_AVERAGED = frozenset("mean reducemean meanext nanmean avgpool adaptiveavgpool".split())
_MULTIPLIED = frozenset(
    "matmul rmatmul mm bmm linear dense dot vdot inner mv einsum tensordot addmm addmv addbmm baddbmm batchmatmul "
    "conv1d conv2d conv3d conv2dbackpropfilter conv2dbackpropinput".split()
)
# Of these the first argument is added to the product of the others.
_WITH_ADDEND = frozenset("addmm addmv addbmm baddbmm".split())


@dataclass(frozen=True, slots=True)
class _Scale:
    """How large what a call adds up is: the largest number of an element, the norm of all, and how many of them."""

    largest: float
    norm: float
    terms: float


def judged_by_terms(rows: list[Row], record: str, *, usual: Callable[[str], float], inherited: float) -> list[Row]:
    """Return judged rows of a call with those outputs that cancel judged by its terms.

    ``usual`` gives the error that is usual for a dtype; beyond the rounding of the sum, an output may be ``inherited``
    times as wrong as the terms.
    """
    wrong = [row for row in rows if row.differs and row.group == "output" and row.metrics.get(SCALED_ERROR)]
    scale_of = _scale_of(record) if wrong else None
    if scale_of is None:
        return rows
    given = [row for row in rows if row.group == "input" and row.target is not None and row.target.is_tensor]
    error = max((row.metrics.get(SCALED_ERROR, math.inf) for row in given), default=math.inf)
    return _passed(rows, [row for row in wrong if _is_explained(row, scale_of, given, usual, error * inherited)])


def _is_explained(
    row: Row,
    scale_of: Callable[[Value, Sequence[Value]], _Scale | None],
    given: Sequence[Row],
    usual: Callable[[str], float],
    inherited: float,
) -> bool:
    target, golden = row.target, row.golden
    if target is None or golden is None or row.unmeasured:
        return False
    own, other = float_dtype(target.dtype), float_dtype(golden.dtype)
    if own is None or other is None:
        return False
    dtype = coarser(own, other)
    scales = [
        scale_of(value, [other for row in given if (other := getattr(row, side)) is not None])
        for value, side in ((target, "target"), (golden, "golden"))
    ]
    error = _error(row, scales)
    if error is None or dtype not in UNIT_ROUNDOFF:
        return False
    terms = max(scale.terms for scale in scales if scale is not None)
    rounding = ROUNDINGS * UNIT_ROUNDOFF[dtype] * math.sqrt(terms)
    return error <= min(usual(dtype), max(rounding, inherited))


def _error(row: Row, scales: Sequence[_Scale | None]) -> float | None:
    """Return how far an output is apart as a share of its terms, None where they are no larger than it or unknown."""
    known = [scale for scale in scales if scale is not None]
    values = [value.statistics for value in (row.target, row.golden) if value is not None]
    if len(known) < len(scales) or len(values) < len(scales):
        return None
    numbers = [statistics for statistics in values if statistics is not None and None not in statistics]
    if len(numbers) < len(scales) or not all(math.isfinite(x) for statistics in numbers for x in statistics if x):
        return None
    largest, norm = min(scale.largest for scale in known), min(scale.norm for scale in known)
    if not largest or not norm:
        return None
    apart = [abs(float(a or 0) - float(b or 0)) for a, b in zip(*numbers, strict=True)]
    return max(
        max([*apart[:3], row.metrics.get("max_abs_err", 0.0)]) / largest,
        max(apart[3], row.metrics.get("euclidean", 0.0)) / norm,
    )


def _scale_of(record: str) -> Callable[[Value, Sequence[Value]], _Scale | None] | None:
    """Return what gives the scale of the terms of a call's output from the call's inputs; None for calls of no sum."""
    called = split_called(record)[0]
    if called.startswith("Kernel."):
        # The scope of a kernel ends in its type, and that in the number of the op.
        called = called.rpartition("-op")[0].rpartition("_")[2]
    elif is_backward_api(record):
        return None
    word = called.rpartition(".")[2].replace("_", "").lower()
    if word in _ADDED:
        return _of_addition
    if word in _SUMMED:
        return _of_sum
    if word in _AVERAGED:
        return _of_mean
    if word in _MULTIPLIED:
        return _of_product_and_first if word in _WITH_ADDEND else _of_product
    return None


def _of_addition(output: Value, given: Sequence[Value]) -> _Scale | None:
    sizes = [_size(value) for value in given]
    known = [size for size in sizes if size is not None]
    if len(known) < 2:
        return None
    # A smaller term is broadcast.
    norms = [size.norm * math.sqrt(_count(output) / _count(value)) for size, value in zip(known, given, strict=False)]
    return _Scale(max(size.largest for size in known), max(norms), len(known))


def _of_sum(output: Value, given: Sequence[Value]) -> _Scale | None:
    size = _size(given[0]) if given else None
    if size is None:
        return None
    terms = _count(given[0]) / _count(output)
    # Terms of either sign add up to the square root of their number; each is as large as they are on average.
    each = size.norm / math.sqrt(_count(given[0]))
    return _Scale(each * math.sqrt(terms), each * math.sqrt(terms * _count(output)), terms)


def _of_mean(output: Value, given: Sequence[Value]) -> _Scale | None:
    total = _of_sum(output, given)
    return None if total is None else _Scale(total.largest / total.terms, total.norm / total.terms, total.terms)


def _of_product(output: Value, given: Sequence[Value]) -> _Scale | None:
    factors = [size for value in given[:2] if (size := _size(value)) is not None]
    if len(factors) < 2:
        return None
    # Of M by K and K by N, of which M by N are made.
    terms = max(math.sqrt(_count(given[0]) * _count(given[1]) / _count(output)), 1.0)
    each = math.prod(size.norm / math.sqrt(_count(value)) for size, value in zip(factors, given, strict=False))
    return _Scale(each * math.sqrt(terms), each * math.sqrt(terms * _count(output)), terms)


def _of_product_and_first(output: Value, given: Sequence[Value]) -> _Scale | None:
    product = _of_product(output, given[1:])
    added = _size(given[0]) if given else None
    if product is None or added is None:
        return product
    norm = added.norm * math.sqrt(_count(output) / _count(given[0]))
    return _Scale(max(product.largest, added.largest), max(product.norm, norm), product.terms + 1)


def _size(value: Value) -> _Scale | None:
    if value.statistics is None or float_dtype(value.dtype) is None:
        return None
    high, low, _, norm = value.statistics
    if high is None or low is None or norm is None or not all(map(math.isfinite, (high, low, norm))):
        return None
    return _Scale(max(abs(high), abs(low)), float(norm), 1.0)


def _count(value: Value) -> int:
    return max(math.prod(value.shape), 1)


def has_cancelled(rows: Iterable[Row]) -> bool:
    """Return whether a value is excused because of a sum that cancels."""
    return any(row.messages == (MESSAGE,) for row in rows)


@dataclass(frozen=True, slots=True)
class _Origin:
    """How far a sum that cancels is apart as a fraction of itself, and the largest number among its terms."""

    error: float
    largest: float


class CancelledValues:
    """What comes of sums that cancel, as later calls are given it: a call that passes it on has made no error.

    A value goes by its numbers on both sides. What follows is ``inherited`` times as far apart as the sum, at most, and
    no larger than the terms of the sum.
    """

    def __init__(self, inherited: float) -> None:
        self._inherited = inherited
        self._origins: dict[tuple[object, object], _Origin] = {}

    def note(self, rows: Iterable[Row]) -> None:
        """Remember the outputs of a call that are excused by its own terms."""
        excused = [row for row in rows if row.group == "output" and row.messages == (MESSAGE,)]
        if excused:
            largest = max((_largest(row) for row in rows if row.group == "input"), default=0.0)
            for row in excused:
                self._add(row, _Origin(row.metrics[SCALED_ERROR], largest))

    def excused(self, rows: list[Row]) -> list[Row]:
        """Return judged rows with those excused that follow from sums that cancel, and remember the outputs."""
        wrong = [row for row in rows if row.differs]
        known = {id(row): origin for row in wrong if (origin := self._origins.get(_key(row))) is not None}
        if not known or any(id(row) not in known for row in wrong if row.group in ("input", "parameters")):
            return rows
        has_entered = any(row.group == "input" and id(row) in known for row in wrong)
        made = [row for row in wrong if id(row) not in known]
        origin = max(known.values(), key=lambda each: each.error)
        if made and not (has_entered and all(self._may_follow(row, origin) for row in made)):
            return rows
        for row in made:
            self._add(row, origin)
        return _passed(rows, wrong)

    def _may_follow(self, row: Row, origin: _Origin) -> bool:
        error = row.metrics.get(SCALED_ERROR, math.inf)
        return not row.unmeasured and error <= self._inherited * origin.error and _largest(row) <= origin.largest

    def _add(self, row: Row, origin: _Origin) -> None:
        key = _key(row)
        if None not in key:
            self._origins.setdefault(key, origin)


def _largest(row: Row) -> float:
    """Return the largest number of a row's tensors, by their statistics; inf where it is not known."""
    values = [value for value in (row.target, row.golden) if value is not None and value.is_tensor]
    sizes = [_size(value) for value in values if float_dtype(value.dtype)]
    return max((math.inf if size is None else size.largest for size in sizes), default=0.0)


def _key(row: Row) -> tuple[object, object]:
    return tuple(None if value is None else value.statistics for value in (row.target, row.golden))  # type: ignore[return-value]


def _passed(rows: Sequence[Row], wrong: Collection[Row]) -> list[Row]:
    excused = {id(row) for row in wrong}
    return [replace(row, outcome="pass", messages=(MESSAGE,)) if id(row) in excused else row for row in rows]
