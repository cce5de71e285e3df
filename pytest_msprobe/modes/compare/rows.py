"""Rows of compared calls, as data that crosses processes: the source of every report.

A row is one recorded value (a tensor or a plain Python value) on the target's and on the golden side. Calls travel
from the worker to the controller as bytes in ``report.msprobe_rows``; `ComparedCalls` keeps them there, encoded, and
gives them back in execution order.
"""

from __future__ import annotations

import zlib
from array import array
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from heapq import merge
from itertools import accumulate
from typing import Literal

import msgspec
import pytest

from msprobe_hooks.dump.values import Group, Value

#: What the two dumps allow: files with values, statistics of the values, checksums of them, or nothing but the calls.
DataMode = Literal["tensor", "statistics", "md5", "structure"]
Outcome = Literal["pass", "warn", "fail", "skip"]
#: How two calls found each other: by name, by name but for the call's number, by a user's mapping, by what surrounds
#: them (a renamed layer), or by the shapes or values of what they were given (a reordered call).
Partner = Literal["", "name", "fuzzy", "mapping", "structure", "shapes", "values"]
#: ``culprit``: the difference begins here. ``inherited``: what the call was given differs by as much already. ``other
#: shapes``: the runs were given other shapes, so that the call was not compared. ``cancels``: the call passes, because
#: what differs is a sum that cancels, or follows from one.
Cause = Literal["", "culprit", "inherited", "other shapes", "cancels"]
ForwardDifference = Literal["", "within the limit", "beyond it"]
#: Why a row has no metrics: a side is missing, a side recorded no value, its file is missing or unreadable, the tensor
#: is empty, the shapes differ, the dtypes are of different kinds, a mapping or a framework leaves the value out, or
#: a transformation does not fit.
Unmeasured = Literal[
    "", "unmatched", "no value", "no file", "unreadable", "empty", "shape", "kind", "left out", "transform"
]

#: In the metrics of every data mode: how far the two are apart as a fraction of their own scale; 0 is equal.
SCALED_ERROR = "scaled_error"
STATISTICS = ("max", "min", "mean", "norm")
#: Keys of ``Row.metrics`` for statistics: target less golden, and that over |golden| (a fraction, not per cent).
STATISTICS_METRICS = tuple(f"{name}_{kind}" for kind in ("diff", "rel_diff") for name in STATISTICS)
#: Keys of ``Row.metrics`` for tensors. A name that `msprobe_standards.METRICS` has too means the same in both; all of
#: them are explained in ``docs/standards-reference.md``, "Metrics of a comparison".
TENSOR_METRICS = (
    "cosine_sim",
    "euclidean",
    "max_abs_err",
    "rel_err_max",
    "rel_err_thousandth",
    "rel_err_five_thousandths",
    "max_ulp_error",
    "nonfinite_mismatch",
)

#: Among the metrics of tensors where NaN or inf makes errors infinite: the greatest one of the other elements.
FINITE_ERROR = "finite_max_abs_err"

#: Among the metrics of a value that differs: how far the two are apart as a fraction of the terms that its call added
#: up, where these are recorded.
TERMS_ERROR = "terms_error"
#: Of one that cancels: how far the two might be apart by what explains it, as a fraction of their own scale.
EXPLAINED_ERROR = "explained_error"

_BLOCK = 64  # texts, a choice: of two kilobytes each, 128 KiB are unpacked for one
# Fast, and nearly as small as any: what repeats is near.
_LEVEL = 1
_NONE = -1
# A choice: results of several workers take turns, and each fills blocks of its own.
_OPEN_BLOCKS = 16


class Row(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One value on both sides; a side that has none is None.

    ``place`` says where in the call it is (``input.0``, ``parameters.weight``). ``metrics`` holds what could be
    measured, by the names of the data mode; what could not is absent, and ``unmeasured`` says why none is there.
    ``worst`` is the index of the element with the greatest error, ``histogram`` counts elements by relative error:
    equal ones, then decades from 1e-9 to above 1 (tensor mode). ``transformed`` says what was done to a side before:
    ``golden rotated by Q.npy``; that side's shape, dtype and statistics are then those of the result. ``setting`` is
    there for an argument that was set otherwise and follows from no number: ``eps 0.01, golden 1e-05``.
    """

    group: Group
    place: str
    target: Value | None
    golden: Value | None
    outcome: Outcome
    metrics: dict[str, float] = {}
    unmeasured: Unmeasured = ""
    messages: tuple[str, ...] = ()
    worst: tuple[int, ...] | None = None
    histogram: tuple[int, ...] = ()
    transformed: tuple[str, ...] = ()
    setting: str = ""

    @property
    def differs(self) -> bool:
        """Return whether the value is wrong or warned of."""
        return self.outcome in ("warn", "fail")


class ComparedCall(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One matched or unmatched call.

    ``pair`` is the number of the pair of dumps, ``order`` the call's place in the execution order of that pair,
    ``record`` the name of the test item. ``module`` is the module in which the call was made, ``stack`` the target's
    recorded call stack, innermost line first. ``rows`` are ordered input, parameters, output, parameters_grad. ``fed``
    is the dump that the target's inputs were fed from, empty where they were not. ``forward_difference`` says of a
    backward culprit how its forward call differs, from whose values gradients are computed.
    """

    record: str
    pair: int
    order: int
    mode: DataMode
    target: str | None
    golden: str | None
    partner: Partner
    outcome: Outcome
    cause: Cause = ""
    reason: str = ""
    module: str = ""
    stack: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    rank: int | None = None
    step: int | None = None
    fed: str = ""
    stage: str = ""
    forward_difference: ForwardDifference = ""

    @property
    def has_settings(self) -> bool:
        """Return whether an argument was set otherwise."""
        return any(row.setting for row in self.rows)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ComparedCall)


def encode(call: ComparedCall) -> bytes:
    """Return a call as bytes that cross processes."""
    return _encoder.encode(call)


def decode(data: bytes) -> ComparedCall:
    """Return the call that `encode` took apart."""
    return _decoder.decode(data)


def rows_of(report: pytest.TestReport) -> ComparedCall | None:
    """Return the compared call that a report carries, None where it is not about one."""
    data: bytes | None = getattr(report, "msprobe_rows", None)
    return None if data is None else decode(data)


class PackedBlocks:
    """Texts by two numbers, of which the second ones are dense, compressed some dozens at a time.

    After texts at (0, 0), (0, 1) and (1, 2), if a block had two::

        _places   {0: [0, 1], 1: [-1, -1, 2]}      the number of each text, by pair and order
        _blocks   [zlib(text 0, text 1)]           _ends  [[31, 64]]: where each text of a block ends
        _waiting  [text 2]                         for the next block to be full
    """

    def __init__(self) -> None:
        self._places: defaultdict[int, array[int]] = defaultdict(lambda: array("l"))
        self._blocks: list[bytes] = []
        self._ends: list[array[int]] = []
        self._waiting: list[bytes] = []
        self._count = 0
        self._opened = lru_cache(_OPEN_BLOCKS)(self._open)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, place: tuple[int, int]) -> bool:
        return self._number(*place) != _NONE

    def add(self, pair: int, order: int, text: bytes) -> None:
        """Keep a text."""
        numbers = self._places[pair]
        if len(numbers) <= order:
            numbers.extend([_NONE] * (order + 1 - len(numbers)))
        numbers[order] = len(self._blocks) * _BLOCK + len(self._waiting)
        self._waiting.append(text)
        self._count += 1
        if len(self._waiting) == _BLOCK:
            self._blocks.append(zlib.compress(b"".join(self._waiting), _LEVEL))
            self._ends.append(array("l", accumulate(map(len, self._waiting))))
            self._waiting = []

    def at(self, pair: int, order: int) -> bytes:
        """Return a text. Raises KeyError where there is none."""
        number = self._number(pair, order)
        if number == _NONE:
            raise KeyError((pair, order))
        block, at = divmod(number, _BLOCK)
        if block == len(self._blocks):
            return self._waiting[at]
        ends = self._ends[block]
        return self._opened(block)[ends[at - 1] if at else 0 : ends[at]]

    def places(self) -> Iterator[tuple[int, int]]:
        """Yield the numbers of all texts, in order."""
        for pair in sorted(self._places):
            yield from ((pair, order) for order, number in enumerate(self._places[pair]) if number != _NONE)

    def _number(self, pair: int, order: int) -> int:
        numbers = self._places.get(pair, ())
        return numbers[order] if order < len(numbers) else _NONE

    def _open(self, block: int) -> bytes:
        return zlib.decompress(self._blocks[block])


class ComparedCalls:
    """Keeps the calls of a run as their reports arrive, and gives them back in execution order.

    A plugin of the process that hears of every item (``config.stash[compared_key]``); complete when
    ``pytest_sessionfinish`` is called. A call of some rows takes two kilobytes while it is kept, packed a quarter::

        _packed  (0, 0), (0, 1), ... (0, 6)       calls whose report is gone, by pair and order
        _calls   {(0, 7): <bytes>, (0, 8): ...}   those whose report still holds the same bytes
    """

    def __init__(self) -> None:
        self._calls: dict[tuple[int, int], bytes] = {}
        self._packed = PackedBlocks()

    def __len__(self) -> int:
        return len(self._calls) + len(self._packed)

    def at(self, pair: int, order: int) -> ComparedCall:
        """Return one call by its pair and its place in execution order."""
        data = self._calls.get((pair, order))
        return decode(self._packed.at(pair, order) if data is None else data)

    def find(self, pair: int, order: int) -> ComparedCall | None:
        """Return one call, None where it was not run."""
        return self.at(pair, order) if (pair, order) in self._calls or (pair, order) in self._packed else None

    def __iter__(self) -> Iterator[ComparedCall]:
        """Yield every call in execution order, pair by pair; one at a time is decoded."""
        for place in merge(sorted(self._calls), self._packed.places()):
            yield self.at(*place)

    def pack(self, pair: int, order: int) -> None:
        """Take less memory for a call of which no report holds the rows any more."""
        data = self._calls.pop((pair, order), None)
        if data is not None:
            self._packed.add(pair, order, data)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the rows that a report carries."""
        data: bytes | None = getattr(report, "msprobe_rows", None)
        if data is not None:
            self._calls[tuple(report.msprobe_place)] = data


compared_key = pytest.StashKey[ComparedCalls]()
