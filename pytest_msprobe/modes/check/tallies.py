"""Counts for the summary of a check: weak verdicts, math modes, elements left open, unused tensors, compilation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from pytest_msprobe.engine.replay.trials.baseline_protocol import TENSORS_UNUSED
from pytest_msprobe.results.result import (
    LITTLE_JUDGED,
    MATH_MODE,
    NARROW_SUMS,
    DirectionResult,
    decode_extra,
    left_open_of,
)

_COMPILED = "compiled"


class Compiled(msgspec.Struct, frozen=True):
    """A call compiled by a backend; the fields are those of `devices.compiled.Compilation`."""

    backend: str
    graphs: int
    breaks: tuple[str, ...] = ()
    kernels: int | None = None
    seconds: float = 0.0

    @property
    def left_eager(self) -> str:
        """Return why a verdict says little of the compiler: it compiled nothing; empty where it did."""
        if self.breaks and not self.kernels:
            return f"{self.backend} compiled nothing of it: {'; '.join(self.breaks)}"
        return f"{self.backend} only calls the eager kernel" if self.kernels == 0 else ""


def with_compiled(result: DirectionResult, compiled: Compiled) -> DirectionResult:
    """Return a result with what was compiled."""
    return result.with_extra(_COMPILED, msgspec.to_builtins(compiled))


def compiled_of(extras: Mapping[str, Any]) -> Compiled | None:
    """Return what the extras of a result say of compiling."""
    return decode_extra(extras, _COMPILED, Compiled)


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


class LittleJudgedTally(ExtraTally):
    """Counts the passes with weak evidence, by reason."""

    extra = LITTLE_JUDGED
    line = "{count} passed with weak evidence: {value}"


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


class CompiledTally:
    """Counts, for the summary, what was compiled and how long that took, and where Python ran in between."""

    def __init__(self) -> None:
        self._backend = ""
        self._compiled = 0
        self._seconds = 0.0
        self._breaks: Counter[str] = Counter()

    def add(self, extras: Mapping[str, Any]) -> None:
        """Count one record."""
        compiled = compiled_of(extras)
        if compiled is not None:
            self._backend = compiled.backend
            self._compiled += compiled.seconds > 0
            self._seconds += compiled.seconds
            self._breaks.update(compiled.breaks)

    def lines(self) -> list[str]:
        """Return the summary's lines."""
        if not self._backend:
            return []
        whole = f"{self._compiled} compiled by {self._backend} in {self._seconds:.1f} s; equal shapes share the code"
        return [whole, *(f"  {count} with a graph break: {reason}" for reason, count in self._breaks.most_common())]
