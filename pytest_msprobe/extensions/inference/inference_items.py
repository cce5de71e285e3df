"""One value of both runs as a test item, and its result."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msprobe_standards.verdict import Verdict
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, ComparedCall, Row, encode
from pytest_msprobe.results.result import DirectionResult, OutputResult
from pytest_msprobe.results.skip_reasons import BaseSkipReason
from pytest_msprobe.run.item import DumpItem

if TYPE_CHECKING:
    import pytest

    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.extensions.inference.inference_pair import InferencePair

STANDARD = "inference"


class InferenceSkip(BaseSkipReason):
    """Reason why a value is not compared."""

    UNALIGNED = "its rows cannot be compared token by token"


class InferenceItem(DumpItem):
    """The comparison of one value: what a module returns or is given, for every token that both runs computed."""

    announces_warnings = False
    # Nothing here runs on a device or takes more memory than a few tensors.
    is_isolated = False
    attributes_made_again = frozenset({"msprobe", "msprobe_place", "msprobe_cause", "msprobe_rows"})
    #: What came of it, until that is reported.
    call: ComparedCall | None = None

    __slots__ = ("pair",)

    def __init__(self, *, pair: InferencePair, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pair = pair

    def judge(self) -> DirectionResult:
        """Compare both runs."""
        self.call = self.pair.compare(self.name)
        return result_of(self.call, self.pair)

    def mark_names(self) -> list[str]:
        """Return none: an item is no record."""
        return []

    def records(self) -> list[bytes]:
        """Return none: an item is no record."""
        return []

    def properties(self) -> list[tuple[str, str]]:
        """Return whether a difference begins here."""
        return [("msprobe.cause", self.call.cause)] if self.call and self.call.cause else []

    def attach(self, report: Any) -> None:
        """Attach the rows to the report, next to the verdict."""
        super().attach(report)
        if self.call is not None and self.result is not None:
            report.msprobe_place = (self.pair.index, self.call.order)
            report.msprobe_cause = self.call.cause
            report.msprobe_rows = encode(self.call)
            self.call = None


def inference_items(file: pytest.File, dump: Dump, pair: InferencePair) -> Iterator[InferenceItem]:
    """Yield the items in the order of the forward pass."""
    for name in pair.orders:
        yield InferenceItem.from_parent(file, name=name, dump=dump, pair=pair)


def result_of(call: ComparedCall, pair: InferencePair) -> DirectionResult:
    """Return what came of a value as every report of a run understands it."""
    if call.outcome == "skip":
        reason = f"{InferenceSkip.UNALIGNED.value}: {call.reason}"
        return DirectionResult(call.record, Verdict("skip", "", reason), skip=InferenceSkip.UNALIGNED)
    differing = [row for row in call.rows if row.differs]
    if not differing:
        return DirectionResult(call.record, Verdict(call.outcome, STANDARD, call.reason))
    outputs = [_output(row) for row in differing]
    deciding = next(number for number, row in enumerate(differing) if row.outcome == call.outcome)
    outputs[deciding] = _output(differing[deciding], _hint(call, differing[deciding], pair))
    return DirectionResult(call.record, outputs[deciding].verdict, tuple(outputs))


def _hint(call: ComparedCall, row: Row, pair: InferencePair) -> str:
    if row.group == "parameters":
        return "the runs hold other weights: synchronise them, and compare again"
    if call.cause == "inherited" and (first := pair.first_culprit):
        return f"it follows from what differs before it; first culprit: {first}" if first != call.record else ""
    return pair.advice(call.record)


def _output(row: Row, hint: str = "") -> OutputResult:
    target, golden = row.target, row.golden
    text = "; ".join(row.messages)
    metrics = {name: value for name, value in row.metrics.items() if not math.isnan(value)}
    return OutputResult(
        row.place,
        Verdict(
            row.outcome,
            STANDARD,
            "\n".join(filter(None, [text, hint])),
            metrics,
            margin=row.metrics.get(SCALED_ERROR, math.inf) / (row.metrics.get("limit") or 1.0),
        ),
        target.dtype if target else "",
        golden.dtype if golden else "",
        target.shape if target else (),
    )
