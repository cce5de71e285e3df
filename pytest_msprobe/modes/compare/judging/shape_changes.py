"""Runs that were given other shapes, as another batch size: one finding, and not one for each call after it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from msprobe_hooks.dump.names import is_forward, is_module_name, split_called, split_module
from msprobe_hooks.dump.values import read_values
from msprobe_hooks.errors import RecordError
from msprobe_hooks.messages import counted
from pytest_msprobe.modes.compare.rows import ComparedCall, Row

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump

# Calls by which a program takes a batch, or a part of a sequence, of its data.
_CUTS: Final = frozenset({"split", "chunk", "tensor_split", "split_with_sizes", "narrow", "__getitem__"})


@dataclass(frozen=True, slots=True)
class MicroBatches:
    """One batch that two runs cut otherwise: a module, and the shapes that each run gave it call by call."""

    module: str
    target: Sequence[tuple[int, ...]]
    golden: Sequence[tuple[int, ...]]

    def __str__(self) -> str:
        ours, theirs = (f"{counted(len(one), 'time')} with {list(one[0])}" for one in (self.target, self.golden))
        return (
            f"the runs cut one batch otherwise: module {self.module} was called {ours}, in the golden run {theirs}; "
            "record both with task tensor and compare token by token, with --msprobe-match inference"
        )


def micro_batches(target: Sequence[Dump], golden: Sequence[Dump]) -> MicroBatches | None:
    """Return how two runs, given as the dumps of their steps, cut one batch into other micro-batches.

    Most modules of both have other numbers of calls in the same ratio, and all calls of one were given as many
    sequences, or as many elements, in both runs. None where shapes do not say so.
    """
    sides = [_module_calls(dumps) for dumps in (target, golden)]
    counts = {path: (len(calls), len(sides[1][path])) for path, calls in sides[0].items() if path in sides[1]}
    most = Counter(counts.values()).most_common(1)
    if not most or most[0][0][0] == most[0][0][1]:
        return None
    path = next(path for path, count in counts.items() if count == most[0][0])
    ours, theirs = ([_given_shape(dump, record) for dump, record in calls[path]] for calls in sides)
    if not all((*ours, *theirs)) or len({len(shape) for shape in (*ours, *theirs)}) > 1:
        return None
    has_as_many = any(sum(map(size, ours)) == sum(map(size, theirs)) for size in (itemgetter(0), math.prod))
    return MicroBatches(path, ours, theirs) if has_as_many else None


def _module_calls(dumps: Sequence[Dump]) -> Mapping[str, Sequence[tuple[Dump, str]]]:
    """Return the forward calls of each module by its path, in the order of the first calls."""
    calls = defaultdict[str, list[tuple["Dump", str]]](list)
    for dump in dumps:
        for name in filter(is_module_name, dump.records):
            if is_forward(name) and not dump.is_recomputed(name):
                calls[split_module(name).path].append((dump, name))
    return calls


def _given_shape(dump: Dump, record: str) -> tuple[int, ...]:
    """Return the shape of the first tensor that a call was given, empty where it was given none."""
    try:
        values = [placed.value for placed in read_values(dump, record) if placed.group == "input"]
    except RecordError:
        # Its own item says what is wrong with it.
        return ()
    return next((tuple(value.shape) for value in values if value.is_tensor and value.shape), ())


def first_shape_change(call: ComparedCall) -> str:
    """Return how the shape of what a forward call was given differs, in words; empty where it does not.

    A call that is given no tensor, as ``arange``, has the shape that its arguments say, and so has one that cuts a
    batch. The same dimensions in another order are no other batch size but a transposition.
    """
    if not is_forward(call.record) or _was_given_the_same(call):
        return ""
    tensors = [row for row in call.rows if row.group == "input" and row.target and row.target.is_tensor]
    is_cut = split_called(call.record)[0].rpartition(".")[2] in _CUTS
    for row in call.rows if is_cut else tensors or call.rows:
        if row.unmeasured == "shape" and row.target and row.golden and not _is_transposed(row):
            return f"{call.record} {row.place} is {list(row.target.shape)} in place of {list(row.golden.shape)}"
    return ""


def shapes_sentence(first: ComparedCall) -> str:
    """Return the one sentence on runs whose first call that differs was given another shape."""
    return f"the runs had different input shapes: {first_shape_change(first)}; later differences may follow from it"


def may_be_consequence(call: ComparedCall, first: ComparedCall) -> bool:
    """Return whether what a wrong call differs by may follow from the other shape that the first one was given.

    A forward call that made another value of equal ones, or one of another shape, is wrong whatever the shapes are.
    """
    if call.order <= first.order:
        return False
    return call.cause == "inherited" or not is_forward(call.record) or has_other_shapes(call)


def has_other_shapes(call: ComparedCall) -> bool:
    """Return whether shapes of a call differ and may do so because of what it was given."""
    return not _was_given_the_same(call) and any(row.unmeasured == "shape" for row in call.rows)


def as_not_comparable(call: ComparedCall) -> ComparedCall:
    """Return the call as one that was not compared; its rows still say how they differ."""
    rows = tuple(replace(row, outcome="skip") if row.differs else row for row in call.rows)
    return replace(call, outcome="skip", cause="other shapes", rows=rows)


def _was_given_the_same(call: ComparedCall) -> bool:
    inputs = [row for row in call.rows if row.group in ("input", "parameters")]
    return bool(inputs) and all(row.outcome == "pass" for row in inputs)


def _is_transposed(row: Row) -> bool:
    assert row.target is not None
    assert row.golden is not None
    return sorted(row.target.shape) == sorted(row.golden.shape)
