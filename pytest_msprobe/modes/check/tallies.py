"""Counts for the summary of a check: math modes, elements left open, unused tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

from pytest_msprobe.engine.replay.trials.baseline_protocol import TENSORS_UNUSED
from pytest_msprobe.results.result import MATH_MODE, NARROW_SUMS, left_open_of


class ExtraTally:
    """Counts records by the value that their results have under one name; subclasses give the name and the line."""

    extra: ClassVar[str]
    #: A line of the summary, with the places ``value`` and ``count``.
    line: ClassVar[str] = ""

    def __init__(self) -> None:
        self._counts: Counter[Any] = Counter()

    def add(self, extras: Mapping[str, Any]) -> None:
        """Count one record."""
        if self.extra in extras:
            self._counts[extras[self.extra]] += 1

    def lines(self) -> list[str]:
        """Return the summary's lines."""
        return [self.line.format(value=value, count=count) for value, count in self._counts.most_common()]


class MathModeTally(ExtraTally):
    """Counts the verdicts in which math modes took part, by mode."""

    extra = MATH_MODE
    line = "{count} judged under {value}, as the device says"


class NarrowSumsTally(ExtraTally):
    """Counts the passes in 16 bits that err by more than sums in float32."""

    extra = NARROW_SUMS

    def lines(self) -> list[str]:
        """Return the summary's line, with the margin of the first."""
        others = " and others" if len(self._counts) > 1 else ""
        return [f"{self._counts.total()} {first}{others}" for first in list(self._counts)[:1]]


class LeftOpenTally:
    """Counts the elements that differ where any value is right, and the records that have them, by the reason."""

    def __init__(self) -> None:
        self._records: Counter[str] = Counter()
        self._elements: Counter[str] = Counter()

    def add(self, extras: Mapping[str, Any]) -> None:
        """Count one record."""
        left_open = left_open_of(extras)
        if left_open is not None:
            self._records[left_open.why] += 1
            self._elements[left_open.why] += left_open.elements

    def lines(self) -> list[str]:
        """Return the summary's lines."""
        return [
            f"{count} with {self._elements[why]} elements that differ where any value is right: {why}"
            for why, count in self._records.most_common()
        ]


class UnusedTensorsTally(ExtraTally):
    """Counts the records that were judged by numbers in place of tensors."""

    extra = TENSORS_UNUSED

    def lines(self) -> list[str]:
        """Return the summary's line, with the first problem."""
        if not self._counts:
            return []
        count, first = self._counts.total(), next(iter(self._counts))
        others = " (and others)" if count > 1 else ""
        return [f"{count} judged by the baseline's numbers, not its tensors: {first}{others}"]
