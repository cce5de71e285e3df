"""One matched or unmatched call of two runs as a test item, its result, and a hint on what to look at next."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from msprobe_hooks.dump.call_context import relevant_frames
from msprobe_hooks.dump.names import is_forward
from msprobe_hooks.dump.values import Value
from msprobe_standards.verdict import Verdict
from pytest_msprobe.modes.compare.dump_pair import DumpPair
from pytest_msprobe.modes.compare.judging.settings import setting_lines
from pytest_msprobe.modes.compare.judging.shape_changes import first_shape_change
from pytest_msprobe.modes.compare.judging.unread_values import row_notes
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, STATISTICS, ComparedCall, Row, compared_key, encode
from pytest_msprobe.reports.junit import verdict_properties
from pytest_msprobe.reports.text import one_line
from pytest_msprobe.results.outcomes import BaseSkipReason
from pytest_msprobe.results.result import DirectionResult, OutputResult
from pytest_msprobe.run.item import DumpItem
from pytest_msprobe.run.item_bases import preselect

if TYPE_CHECKING:
    import pytest


_STACK_SHOWN = 3
_SETTINGS_SHOWN = 4


class ComparedItem(DumpItem):
    """The comparison of one call of the target with its golden partner."""

    announces_warnings = False
    # Nothing here runs on a device or takes more memory than two tensors.
    is_isolated = False
    attributes_made_again = frozenset({"msprobe", "msprobe_place", "msprobe_cause", "msprobe_rows"})
    #: What came of it, until that is reported.
    call: ComparedCall | None = None

    __slots__ = ("pair",)

    def __init__(self, *, pair: DumpPair, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pair = pair

    def judge(self) -> DirectionResult:
        """Compare the two calls."""
        self.call = self.pair.compare(self.name)
        return result_of(self.call, self.pair)

    def evaluate(self) -> DirectionResult:
        """Judge once until it is reported: `direct_report` asks before pytest does."""
        return super().evaluate() if self.result is None or self.call is None else self.result

    def direct_report(self) -> pytest.TestReport | None:
        """Compare, and return the report of a call that agrees: hooks around it take three times as long."""
        start = time.time()
        verdict = self.evaluate().verdict
        if verdict.outcome == "fail":
            return None
        skipped = one_line(verdict.reason) if verdict.outcome == "skip" else None
        report = self.phase_report("call", start, time.time(), skipped=skipped)
        self.attach(report)
        return report

    def report_again(
        self, when: Literal["setup", "call", "teardown"], start: float, stop: float, skipped: str | None
    ) -> pytest.TestReport:
        """Return the report of a phase as it was, from the rows that are kept of every call."""
        self._set_properties(self.config.stash[compared_key].at(*self._place))
        report = self.phase_report(when, start, stop, skipped=skipped if when == "call" else None)
        if when == "call":
            self.attach(report)
        elif when == "setup":
            report.user_properties.clear()
        self.call = None
        return report

    def initialize(self) -> None:
        """Set the item up as pytest does, and with the properties that it had when it has run."""
        super().initialize()
        calls = self.config.stash.get(compared_key, None)
        call = None if calls is None else calls.find(*self._place)
        if call is not None:
            self._set_properties(call)

    def _set_properties(self, call: ComparedCall) -> None:
        self.call, self.result = call, result_of(call, self.pair)
        self.user_properties[:] = [*verdict_properties(self.result), *self.properties()]

    def release(self) -> None:
        """Release what the item holds, and have its rows packed."""
        calls = self.config.stash.get(compared_key, None)
        # In a worker nothing is kept: rows and reports go to the controller.
        if calls is not None:
            calls.pack(*self._place)
        super().release()

    @property
    def _place(self) -> tuple[int, int]:
        return self.pair.index, self.pair.orders[self.name]

    def properties(self) -> list[tuple[str, str]]:
        """Return the golden partner, and whether a difference begins here."""
        if self.call is None:
            return []
        golden = [("msprobe.golden", self.call.golden)] if self.call.golden else []
        return golden + ([("msprobe.cause", self.call.cause)] if self.call.cause else [])

    def attach(self, report: Any) -> None:
        """Attach the rows to the report, next to the verdict."""
        super().attach(report)
        report.msprobe_place = self._place
        if self.call is not None and self.result is not None:
            report.msprobe_cause = self.call.cause
            report.msprobe_rows = encode(self.call)
            notes = row_notes(self.call.rows)
            if notes:
                report.msprobe_notes = [[note, f"{self.name} {place}"] for note, place in notes]
            # Thousands of calls with their rows would otherwise live until the run ends.
            self.call = None


class QuickItem(DumpItem):
    """The question whether two dumps are equal, answered with the first differences."""

    announces_warnings = False

    def __init__(self, *, pair: DumpPair, **kwargs: Any) -> None:
        super().__init__(dump=pair.target, **kwargs)
        self.pair = pair

    def judge(self) -> DirectionResult:
        """Compare the records as they were written; only what differs is looked at."""
        matches = self.pair.matching.matches
        differing = [match.item_name for match in matches if not self.pair.is_equal(match)]
        calls = (self.pair.compare(name) for name in differing)
        wrong = [call for call in calls if call.outcome != "pass"]
        settings = setting_lines(wrong, _SETTINGS_SHOWN)
        if not wrong:
            return DirectionResult(self.name, Verdict("pass", "equal", f"{len(matches)} records are equal"))
        first = next((call for call in wrong if call.outcome != "skip"), wrong[0])
        outputs = result_of(first, self.pair).outputs
        reason = f"{len(wrong)} of {len(matches)} records differ, first {first.record}"
        reason += "".join(f"\n{output.path}: {output.verdict.reason}" for output in outputs[:1])
        reason = "\n".join([*settings, f"{reason}\n{first.reason}".rstrip()])
        verdict = Verdict("fail", "equal", reason, margin=math.inf)
        return DirectionResult(self.name, verdict)


def compared_items(file: pytest.File, pair: DumpPair, quick: bool) -> Iterator[DumpItem]:
    """Yield an item for each call of both runs in execution order, or the one of the quick question."""
    if quick:
        yield QuickItem.from_parent(file, name="all records", pair=pair)
        return
    yield from ComparedItem.deferred(file, preselect(file, pair.target, pair.orders), dump=pair.target, pair=pair)


class CompareSkip(BaseSkipReason):
    """Reason why a call is not compared."""

    NO_PARTNER = "the other run has no such call"
    OTHER_SHAPES = "the runs had different input shapes; later differences may follow from it"
    NO_VALUES = "neither run recorded values to compare"


def result_of(call: ComparedCall, pair: DumpPair) -> DirectionResult:
    """Return what came of a call as every report of a run understands it; a call without findings has no outputs."""
    policy = pair.policy.name
    if call.partner == "" and call.outcome == "skip":
        return DirectionResult(call.record, Verdict("skip", "", call.reason), skip=CompareSkip.NO_PARTNER)
    if call.outcome == "skip":
        reason = CompareSkip.OTHER_SHAPES if call.cause == "other shapes" else CompareSkip.NO_VALUES
        return DirectionResult(call.record, Verdict("skip", "", reason.value), skip=reason)
    if call.partner == "":
        return DirectionResult(call.record, Verdict(call.outcome, policy, call.reason, margin=math.inf))
    if call.outcome == "pass":
        return DirectionResult(call.record, Verdict("pass", policy))
    differing = [row for row in call.rows if row.differs]
    deciding = max((row for row in differing if row.outcome == call.outcome), key=_blame)
    advice = pair.given(call).advice if call.cause == "culprit" and not deciding.setting else ""
    culprit = pair.first_culprit if call.cause == "inherited" else ""
    hint = advice or next_step_hint(call, deciding, culprit)
    outputs = tuple(_output(call, row, policy, hint=hint if row is deciding else "") for row in differing)
    return DirectionResult(call.record, outputs[differing.index(deciding)].verdict, outputs)


def _blame(row: Row) -> tuple[bool, bool, float]:
    """Order the rows of one outcome: a setting says most of a call, then what it computed, last what it was given."""
    return bool(row.setting), row.group in ("output", "parameters_grad"), row.metrics.get(SCALED_ERROR, math.inf)


def _output(call: ComparedCall, row: Row, policy: str, *, hint: str) -> OutputResult:
    target, golden = row.target, row.golden
    reason = "; ".join([*row.messages, *row.transformed])
    if hint:
        reason = "\n".join([reason, hint, *_surroundings(call)])
    metrics = {name: value for name, value in row.metrics.items() if not math.isnan(value)}
    return OutputResult(
        row.place,
        Verdict(row.outcome, policy, reason, metrics, margin=row.metrics.get(SCALED_ERROR, math.inf)),
        target.dtype if target else "",
        golden.dtype if golden else "",
        target.shape if target else (),
        difference="\n".join(_numbers(target, golden, row)),
    )


_VARYING = ("conv2d", "conv3d", "matmul", "nll_loss", "layer_norm", "lstm")


def next_step_hint(call: ComparedCall, row: Row, culprit: str) -> str:
    """Return advice for a wrong call's deciding row, by the first culprit."""
    if row.setting:
        return "This argument was set otherwise: numbers that differ before do not explain it."
    if call.cause == "inherited":
        return _inherited(call, culprit)
    if row.group == "saved":
        return "It was saved by name, so its inputs are unknown: check what was saved before it."
    if first_shape_change(call):
        return "The input shapes differ here: record both runs with the same batch size and sequence length."
    forward = is_forward(call.record)
    if call.fed and row.group == "input":
        text = (
            "The code between the modules that ran before and this call computed another value, which was replaced: "
            "check that code."
        )
    elif row.group in ("input", "parameters"):
        text = (
            "No call before it differs: find where this value was made. The runs may have other data or weights, an "
            "operation in place may have changed it, or something else overwrote its memory."
            if forward
            else "The incoming gradient differs: check the forward results first, the loss among them."
        )
    else:
        where = "forward" if forward else "backward"
        entered = [row for row in call.rows if row.group in ("input", "parameters") and row.metrics.get(SCALED_ERROR)]
        entering = f"{', '.join(row.place for row in entered)} differ{'s' * (len(entered) == 1)}, too"
        if call.forward_difference == "beyond it":
            text = "Its forward call differs, from whose values gradients are computed: check that call first."
        elif any(row.differs for row in entered):
            text = f"Its {entering}: if no call before it is wrong, check the {where} computation of this call."
        else:
            text = f"The difference begins here: check the {where} computation of this call."
            text += f" Its {entering}, within the limit." if entered else ""
            if call.forward_difference:
                text += " Its forward call differs within the limit, from whose values gradients are computed."
    if row.group == "output" and any(word in call.record.lower() for word in _VARYING):
        text += " Such kernels may sum in a varying order: turn on deterministic mode and record again."
    return text


def _inherited(call: ComparedCall, culprit: str) -> str:
    if call.fed:
        return "The difference comes from a call inside it, as its inputs were fed"
    first = f"first culprit: {culprit}" if culprit else "the summary names the first culprit"
    if any(row.differs for row in call.rows if row.group in ("input", "parameters")):
        return f"Its inputs differ already; {first}"
    return f"The difference comes from a call inside or before it; {first}"


def _numbers(target: Value | None, golden: Value | None, row: Row) -> Iterator[str]:
    for name, value in (("target", target), ("golden", golden)):
        if value is not None and value.statistics is not None and value.is_tensor:
            numbers = (f"{word} {x:.9g}" for word, x in zip(STATISTICS, value.statistics, strict=True) if x is not None)
            yield f"{name}: {', '.join(numbers)}"
        elif value is not None and value.checksum is not None and value.is_tensor:
            yield f"{name}: checksum {value.checksum}"
    if "cosine_sim" in row.metrics:
        yield f"cosine {row.metrics['cosine_sim']:.12g}, greatest absolute error {row.metrics['max_abs_err']:.6g}"


def _surroundings(call: ComparedCall) -> Iterator[str]:
    if call.fed:
        yield f"its inputs were fed from {call.fed}: no error of an earlier call is in them"
    if call.golden != call.target:
        yield f"compared with {call.golden} (matched by {call.partner})"
    if call.module:
        yield f"called in {call.module}"
    for frame in relevant_frames(call.stack, _STACK_SHOWN):
        yield "  " + " ".join(frame.split())
