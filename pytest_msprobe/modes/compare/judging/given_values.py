"""Unexplained inputs of the call where two runs part: weights that differ, and data from outside."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import isclose, isnan, prod
from typing import TYPE_CHECKING

from msprobe_hooks.dump.names import float_dtype, is_forward, is_module_name, split_module
from msprobe_hooks.dump.values import Number, PlacedValue, Value, read_values
from msprobe_hooks.errors import DumpError
from msprobe_hooks.messages import listed
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, STATISTICS, ComparedCall, Row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.modes.compare.matching.matches import Match

_SHOWN = 4  # names in a sentence
_PARAMETER = "Parameter"
# A choice: norms of the same numbers, added up in another order in float32, agree to so much of themselves.
_SUMMED = 1e-6
# A mean may cancel.
_WITHOUT_MEAN = [i for i, name in enumerate(STATISTICS) if name != "mean"]


@dataclass(frozen=True, slots=True)
class Given:
    """Differences in what a call was given, where they explain what it made.

    Attributes:
        record: The name of the call.
        weights: Parameters, by their names in the model, with what is said of each.
        unnamed: Places of likely weights, which require a gradient and which no call made, with what is said of each.
        outside: Places of other values that no call made, with what is said of each.
        more_weights: Names of the other parameters that differ.
        change: What changed before the call between two others, in words; empty where nothing is known to have.
    """

    record: str
    weights: Mapping[str, str]
    unnamed: Mapping[str, str]
    outside: Mapping[str, str]
    more_weights: Sequence[str] = ()
    change: str = ""

    def __bool__(self) -> bool:
        return bool(self.weights or self.unnamed or self.outside)

    @property
    def headline(self) -> str:
        """In place of what the call made of it."""
        parts = []
        if self.outside:
            parts.append(f"the runs were given other inputs: {self.record} {_with_words(self.outside)}")
        if self.weights:
            parts.append(f"{_weights(self.weights)}; first read by {self.record}")
        if self.unnamed:
            parts.append(f"a weight differs: {self.record} {_with_words(self.unnamed)}, by its requires_grad")
        return "; and ".join(parts)

    @property
    def advice(self) -> str:
        """For the failure of the call."""
        parts = []
        if self.change:
            parts.append(f"{self.change}: look between these calls, as for one in place that is not recorded.")
        if self.outside:
            parts.append(f"The runs were given other inputs: no recorded call computed {listed(self.outside, _SHOWN)}.")
        if self.weights:
            words = "Weight {} differs" if len(self.weights) == 1 else "Weights {} differ"
            parts.append(f"{words.format(listed(self.weights, _SHOWN))}; this call reads it first.")
        if self.unnamed:
            parts.append(
                f"A weight differs: {listed(self.unnamed, _SHOWN)} requires a gradient, and no call computed it."
            )
        return " ".join(parts)


def _with_words(places: Mapping[str, str]) -> str:
    return listed((f"{place} ({words})" for place, words in places.items()), _SHOWN)


def _weights(weights: Mapping[str, str]) -> str:
    if len(weights) > 1:
        return f"weights {_with_words(weights)} differ"
    ((name, words),) = weights.items()
    return f"weight {name} differs ({words})"


class GivenValues:
    """Finds what a call of the target was given that no call before made.

    ``judge`` gives the rows of a match, ``is_equal`` says whether one needs no judging. ``inherited`` is how many times
    the error of what a call was given explains what it made.
    """

    def __init__(
        self,
        matches: Sequence[Match],
        dumps: tuple[Dump, Dump],
        *,
        inherited: float,
        judge: Callable[[str, str], list[Row]],
        is_equal: Callable[[Match], bool],
    ) -> None:
        self._matches = matches
        self._target, self._golden = dumps
        self._inherited = inherited
        self._judge = judge
        self._is_equal = is_equal
        self._read = 0
        # By the contents of what the calls of each run made, the place of the first that did.
        self._made: tuple[dict[Hashable, int], dict[Hashable, int]] = ({}, {})
        self._change = ""

    def of_call(self, call: ComparedCall) -> Given:
        """Return what differs of what a forward call was given."""
        inputs = [(row.place, row.target, row.golden) for row in call.rows if row.group == "input"]
        change = ""
        if any(_content(target) != _content(golden) for _, target, golden in inputs):
            self._read_until(call.order)
            change = self._change or next(self._changes(call.record, inputs), "")
        return replace(self._explaining(call), change=change)

    def _explaining(self, call: ComparedCall) -> Given:
        """Return the differences that explain those of the call, none where the call itself adds to them."""
        differing = [
            row
            for row in call.rows
            if row.differs
            and row.group in ("input", "parameters")
            and row.metrics
            and row.target
            and row.target.is_tensor
        ]
        if not differing or not self._explains(differing, call.rows):
            return Given(call.record, {}, {}, {})
        weights, others = dict[str, str](), list[Row]()
        for row in differing:
            name = _parameter(call.record, row) if row.group == "parameters" else self._weights.get(_contents(row))
            if name is None:
                others.append(row)
            else:
                weights.setdefault(name, row.messages[-1])
        outside = [row for row in others if self._is_from_outside(row, call.order)]
        unnamed = [row for row in outside if _is_parameter(row.target)]
        return Given(
            call.record,
            weights,
            {row.place: row.messages[-1] for row in unnamed},
            {row.place: row.messages[-1] for row in outside if row not in unnamed},
            [name for name in self._weights.values() if name not in weights],
        )

    def _explains(self, differing: Sequence[Row], rows: Sequence[Row]) -> bool:
        if any(row.target and not float_dtype(row.target.dtype) for row in differing):
            # Another index leads to another element altogether.
            return True
        output_error = max((row.metrics.get(SCALED_ERROR, 0.0) for row in rows if row.group == "output"), default=0.0)
        return output_error <= self._inherited * max(row.metrics.get(SCALED_ERROR, 0.0) for row in differing)

    @cached_property
    def _weights(self) -> dict[Hashable, str]:
        """The names of the parameters that differ, by their contents on both sides."""
        names: dict[Hashable, str] = {}
        for match in self._matches:
            target, golden = match.target, match.golden
            if target is None or golden is None or not (is_module_name(target) and is_forward(target)):
                continue
            with suppress(DumpError):
                if not self._is_equal(match):
                    for row in self._judge(target, golden):
                        if row.group == "parameters" and row.differs:
                            names.setdefault(_contents(row), _parameter(target, row))
        return names

    def _is_from_outside(self, row: Row, order: int) -> bool:
        """Return whether no call before returned the value, on either side."""
        self._read_until(order)
        return all(
            content is not None and first_calls.get(content, order) >= order
            for content, first_calls in zip(_contents(row), self._made, strict=True)
        )

    def _read_until(self, order: int) -> None:
        while self._read < order:
            place, self._read = self._read, self._read + 1
            match = self._matches[place]
            ours = _values(self._target, match.target)
            theirs = ours if self._is_equal(match) else _values(self._golden, match.golden)
            if not self._change and ours is not theirs:
                golden = {one.place: one.value for one in theirs if one.group == "input"}
                inputs = [(one.place, one.value, golden.get(one.place)) for one in ours if one.group == "input"]
                self._change = next(self._changes(match.item_name, inputs), "")
            for first_calls, record, values in zip(
                self._made, (match.target, match.golden), (ours, theirs), strict=True
            ):
                for placed in _results(record, values):
                    first_calls.setdefault(_content(placed.value), place)

    def _changes(self, record: str, inputs: Iterable[tuple[str, Value | None, Value | None]]) -> Iterator[str]:
        """Yield what a call was given in the golden run as another returned it, and in the target with other values."""
        makers, golden_makers = self._made
        for place, value, right in inputs:
            content, golden_content = _content(value), _content(right)
            maker = None if golden_content is None else golden_makers.get(golden_content)
            if (
                value is None
                or right is None
                or maker is None
                or content in (None, golden_content)
                or content in makers
            ):
                continue
            match = self._matches[maker]
            returned = {one.place: one.value for one in _results(match.target, _values(self._target, match.target))}
            theirs = _results(match.golden, _values(self._golden, match.golden))
            at = next((one.place for one in theirs if _content(one.value) == golden_content), "")
            if at in returned and prod(returned[at].shape) == prod(value.shape):
                dtypes = returned[at].dtype, value.dtype
                is_converted = dtypes[0] != dtypes[1]
                how = "was converted from {} to {}".format(*dtypes) if is_converted else "changed"
                if is_converted or _is_other(returned[at], value, right):
                    yield f"{place} of {record} {how} after {match.target} returned it, in the target alone"


def _values(dump: Dump, record: str | None) -> list[PlacedValue]:
    # What cannot be read is reported by its own item.
    with suppress(DumpError):
        return [] if record is None else read_values(dump, record)
    return []


def _results(record: str | None, values: list[PlacedValue]) -> Iterator[PlacedValue]:
    # What arrives at a backward call was made by another, or added up.
    groups = ("output", "parameters_grad") if is_forward(record or "") else ("input", "output", "parameters_grad")
    return (placed for placed in values if placed.group in groups)


def _is_other(before: Value, after: Value, golden: Value) -> bool:
    """Return whether a value is another than it was, by more than the order in which its numbers were added up.

    Not where golden is constant: other calls may have returned the same.
    """
    if before.checksum is not None:
        return True
    was, now, right = before.statistics, after.statistics, golden.statistics
    if was is None or now is None or right is None or right[0] == right[1]:
        return False
    return any(_are_apart(was[i], now[i]) for i in _WITHOUT_MEAN)


def _are_apart(one: Number | None, other: Number | None) -> bool:
    if one is None or other is None:
        return False
    return isnan(one) != isnan(other) if isnan(one) or isnan(other) else not isclose(one, other, rel_tol=_SUMMED)


def _contents(row: Row) -> tuple[Hashable, Hashable]:
    return _content(row.target), _content(row.golden)


def _content(value: Value | None) -> Hashable:
    """Return what two tensors of one content share whatever their shapes, None where nothing was recorded of it."""
    if value is None or not value.is_tensor:
        return None
    return value.checksum or value.statistics


def _parameter(record: str, row: Row) -> str:
    return ".".join(filter(None, (split_module(record).path, row.place.removeprefix("parameters."))))


def _is_parameter(value: Value | None) -> bool:
    return value is not None and (value.requires_grad is True or value.type.endswith(_PARAMETER))
