"""Unexplained inputs of the call where two runs part: weights that differ, and data from outside."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from msprobe_hooks.dump.names import float_dtype, is_forward, is_module_name, split_module
from msprobe_hooks.dump.values import read_values
from msprobe_hooks.errors import DumpError
from msprobe_hooks.messages import listed
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, ComparedCall, Row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from msprobe_hooks.dump.reader import Dump
    from msprobe_hooks.dump.values import Value
    from pytest_msprobe.modes.compare.matching.matches import Match

_SHOWN = 4  # names in a sentence
_PARAMETER = "Parameter"


@dataclass(frozen=True, slots=True)
class Given:
    """Differences in what a call was given, where they explain what it made.

    Attributes:
        record: The name of the call.
        weights: Parameters, by their names in the model, with what is said of each.
        unnamed: Places of likely weights, which require a gradient and which no call made, with what is said of each.
        outside: Places of other values that no call made, with what is said of each.
        more_weights: Names of the other parameters that differ.
    """

    record: str
    weights: Mapping[str, str]
    unnamed: Mapping[str, str]
    outside: Mapping[str, str]
    more_weights: Sequence[str] = ()

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

    def of_call(self, call: ComparedCall) -> Given:
        """Return what differs of what a forward call was given, nothing where the call itself adds to it."""
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
            ours = _results(self._target, match.target)
            theirs = ours if self._is_equal(match) else _results(self._golden, match.golden)
            for first_calls, contents in zip(self._made, (ours, theirs), strict=True):
                for content in contents:
                    first_calls.setdefault(content, place)


def _results(dump: Dump, record: str | None) -> list[Hashable]:
    if record is None:
        return []
    # What arrives at a backward call was made by another, or added up.
    groups = ("output", "parameters_grad") if is_forward(record) else ("input", "output", "parameters_grad")
    # What cannot be read is reported by its own item.
    with suppress(DumpError):
        return [_content(placed.value) for placed in read_values(dump, record) if placed.group in groups]
    return []


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
