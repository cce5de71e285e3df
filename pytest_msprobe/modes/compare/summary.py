"""The closing section of a comparison: where the runs part first, renamed layers, ranks and steps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import pytest

from msprobe_hooks.dump.call_context import relevant_frames
from msprobe_hooks.dump.names import is_forward
from msprobe_hooks.dump.tokens import FILE as TOKENS
from msprobe_hooks.messages import counted, listed
from pytest_msprobe.modes.compare.judging.settings import setting_lines
from pytest_msprobe.modes.compare.judging.shape_changes import has_other_shapes, micro_batches, shapes_sentence
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, ComparedCall, ComparedCalls
from pytest_msprobe.reports.summary import write_section

if TYPE_CHECKING:
    from pytest_msprobe.modes.compare.dump_pair import DumpPair
    from pytest_msprobe.modes.compare.judging.given_values import Given

_OUTCOMES = {"pass": "equal enough", "warn": "warned", "fail": "wrong", "skip": "not compared"}
_SHOWN = 4
_CANCELLED = "hold sums that cancel, or what follows from them"
_FRAMES_SHOWN = 3
_NO_PAIR = -1

# What a difference begins in, and what is said of the others of its kind.
_FORWARD, _BACKWARD, _SAVED = "forward culprit", "backward culprit", "saved value that differs"
_KINDS = {
    _FORWARD: "forward calls after it that add to the error",
    _BACKWARD: "backward calls after it that add to the error",
    _SAVED: "saved values after it that differ",
}


class CompareSummary:
    """Counts outcomes as reports arrive, and names the first culprits of each pair of dumps at the end.

    ``names_inherited`` where the calls that inherited their error are named.
    """

    def __init__(self, pairs: Sequence[DumpPair], calls: ComparedCalls, *, names_inherited: bool) -> None:
        self._pairs = pairs
        self._calls = calls
        self._outcomes: dict[int, Counter[str]] = defaultdict(Counter)
        self._reasons: Counter[str] = Counter()
        self._suspects: dict[int, dict[int, str]] = defaultdict(dict)
        self._inherited: list[str] = []
        self._names_inherited = names_inherited
        self._notes: dict[str, list[str]] = defaultdict(list)
        self._cancelled = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one call."""
        plain: dict[str, Any] | None = getattr(report, "msprobe", None)
        place: tuple[int, int] | None = getattr(report, "msprobe_place", None)
        # A call that took its worker with it has no pair; the quick question is not a call.
        if plain is None or (place is None and plain["breakdown"] is None):
            return
        outcome = plain["verdict"]["outcome"]
        self._outcomes[place[0] if place else _NO_PAIR][outcome] += 1
        for note, value in getattr(report, "msprobe_notes", ()):
            self._notes[note].append(value)
        if outcome == "skip":
            self._reasons[plain["verdict"]["reason"]] += 1
        elif outcome == "pass":
            self._cancelled += getattr(report, "msprobe_cause", "") == "cancels"
        elif place and plain["breakdown"] is None:
            if report.msprobe_cause == "culprit":
                self._suspects[place[0]][place[1]] = outcome
            else:
                self._inherited.append(plain["record"])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the section."""
        write_section(terminalreporter, bool(self._outcomes), self.lines)

    def lines(self, finished_before: Counter[str]) -> list[str]:
        """Return the section's lines, the first culprits first; ``finished_before`` counts what a journal had."""
        backwards = sorted(self._pairs, key=lambda pair: pair.step or 0, reverse=True)
        wrong_since = {(pair.rank, pair.stage): pair.step for pair in backwards if self._suspects[pair.index]}
        lines = [
            line for pair in self._pairs for line in self._culprits(pair, wrong_since.get((pair.rank, pair.stage)))
        ]
        total = sum(self._outcomes.values(), Counter[str]())
        if not (lines or self._inherited) and total:
            if not total["pass"]:
                lines = ["nothing was compared"]
            elif not total["fail"]:
                lines = [f"no compared call differs{self._within_limits()}"]
        counts = ", ".join(f"{total[key]} {word}" for key, word in _OUTCOMES.items() if total[key])
        lines.append(f"{counted(sum(total.values()), 'call')}: {counts}")
        if finished_before:
            before = ", ".join(f"{count} {_OUTCOMES.get(key, key)}" for key, count in finished_before.items())
            lines.append(f"finished before this run, not included above: {before}")
        if self._inherited:
            whose = "its error from its" if len(self._inherited) == 1 else "their error from their"
            names = f": {listed(self._inherited)}" if self._names_inherited else " (listed with -v)"
            lines.append(f"{len(self._inherited)} of them inherited {whose} inputs{names}")
        if self._cancelled:
            hold = "holds a sum that cancels, or what follows from it" if self._cancelled == 1 else _CANCELLED
            lines.append(f"{self._cancelled} of them {hold}: judged by the scale of the terms")
        lines += [f"{count} not compared: {reason}" for reason, count in self._reasons.most_common()]
        lines += self._of_values()
        lines += self._not_required()
        lines += self._renamed()
        lines += self._remarks()
        lines += self._of_tokens()
        lines += self._unused()
        return [*lines, *(self._overview() if len(self._pairs) > 1 else ())]

    def _within_limits(self) -> str:
        """Return which value is the first that is not equal, where none is wrong."""
        unequal = ((call, row) for call in self._calls for row in call.rows if row.metrics.get(SCALED_ERROR))
        call, row = next(unequal, (None, None))
        if call is None or row is None:
            return ""
        at = f"{call.record} {row.place}, scaled error {row.metrics[SCALED_ERROR]:.2e}"
        return f" by more than its limit; the first that is not equal: {at}"

    def _culprits(self, pair: DumpPair, wrong_since: int | None) -> Iterator[str]:
        """Yield what differs first in a pair; ``wrong_since`` is the first step of its rank in which something does."""
        suspects = self._suspects[pair.index]
        calls = [self._calls.at(pair.index, order) for order in sorted(suspects)]
        where = f"{place_words(pair)}: " if len(self._pairs) > 1 else ""
        if calls:
            yield from (f"{where}{line}" for line in self._strangers(pair))
        yield from (f"{where}{line}" for line in setting_lines(calls, _SHOWN))
        reshaped = next((call for call in calls if any(row.unmeasured == "shape" for row in call.rows)), None)
        batches = micro_batches([pair.target], [pair.golden]) if calls and pair.unmatched else None
        if batches is not None:
            yield f"{where}{batches}"
            calls = [call for call in calls if not any(row.unmeasured == "shape" for row in call.rows)]
        if pair.reshaped is not None:
            yield f"{where}{shapes_sentence(pair.reshaped)}"
            yield from (f"    {line}" for line in _where(pair.reshaped))
            calls = [call for call in calls if not has_other_shapes(call)]
        for kind in _KINDS:
            own = [call for call in calls if _kind(pair, call) == kind]
            if own:
                yield from self._of_kind(pair, kind, own, where, wrong_since)
        if batches is None:
            yield from (f"{where}{hint}" for hint in _fuzzy_hint(pair, calls, reshaped))

    def _strangers(self, pair: DumpPair) -> Iterator[str]:
        """Yield a line where most calls of both runs are without a partner, and most others have other shapes."""
        matches = pair.matching.matches
        is_alone = {bool(match.target) for match in matches if not (match.target and match.golden)}
        if len(is_alone) < 2 or 2 * pair.unmatched < len(matches):
            return
        paired = [order for order, match in enumerate(matches) if match.target and match.golden]
        calls = [call for order in paired if (call := self._calls.find(pair.index, order)) is not None]
        reshaped = [call for call in calls if any(row.unmeasured == "shape" for row in call.rows)]
        if 2 * len(reshaped) > len(calls):
            yield (
                f"these do not look like two runs of one model: {len(paired)} of {len(matches)} calls have a partner, "
                f"of which {len(reshaped)} have other shapes"
            )

    def _of_kind(
        self, pair: DumpPair, kind: str, own: Sequence[ComparedCall], where: str, wrong_since: int | None
    ) -> Iterator[str]:
        """Yield what the differences of a kind begin with, and what adds to them."""
        # Other values have other gradients.
        unexplained = [call for call in own if call.forward_difference != "beyond it"]
        first = next(iter(unexplained), own[0])
        inputs = pair.given(first)
        is_later = wrong_since is not None and wrong_since < (pair.step or 0)
        if not unexplained:
            yield f"{where}backward calls differ as their forward calls do, first {_finding(first)}"
        elif kind == _FORWARD and is_later and inputs.weights and not (inputs.outside or inputs.unnamed):
            names = listed([*inputs.weights, *inputs.more_weights], _SHOWN)
            yield f"{where}begins with weights that differ since step {wrong_since}: {names}"
        else:
            yield f"{where}first {kind}: {inputs.headline or _finding(first)}"
            yield from (f"    {line}" for line in _place(pair, first, inputs))
        if first.outcome == "warn":
            failing = next((call for call in own if call.outcome == "fail"), None)
            if failing is not None:
                yield f"  first wrong beyond a warning: {_finding(failing)}"
        if len(own) > 1:
            yield f"  {_KINDS[kind]}: {listed((call.record for call in own if call is not first), _SHOWN)}"

    def _of_values(self) -> Iterator[str]:
        """Return which values were left out, or compared in part."""
        for note, names in self._notes.items():
            yield f"{counted(len(names), 'value')} {note}: {listed(sorted(names), _SHOWN)}"

    def _not_required(self) -> Iterator[str]:
        """Return what a policy requires of metrics that these dumps do not have."""
        for required in self._pairs[0].policy.required:
            modes = dict.fromkeys(pair.mode for pair in self._pairs if not required.is_measured(pair.mode))
            if modes:
                yield f"not required, as dumps of {' and '.join(modes)} have no {required.metric}: {required.text}"
        own = [*self._pairs[0].metrics]
        modes = dict.fromkeys(pair.mode for pair in self._pairs if pair.mode != "tensor")
        if own and modes:
            yield f"not measured, as dumps of {' and '.join(modes)} hold no tensors: {listed(own, _SHOWN)}"

    def _renamed(self) -> Iterator[str]:
        renamed = {old: new for pair in self._pairs for old, new in pair.matching.renamed.items()}
        for target, golden in renamed.items():
            yield f"layers matched by their structure: {target} is {golden} in the golden run"

    def _remarks(self) -> Iterator[str]:
        """Yield a line for all values of which the same is to be said, as of those that ranks hold differently."""
        values: dict[tuple[int, str], list[str]] = defaultdict(list)
        for note in (note for pair in self._pairs for note in pair.notes):
            values[note.place, note.words].append(note.value)
        for (_, words), names in sorted(values.items()):
            yield f"{words}: {listed(list(dict.fromkeys(names)), _SHOWN)}"

    def _of_tokens(self) -> Iterator[str]:
        if any((pair.target.path.parent / TOKENS).exists() for pair in self._pairs):
            yield "not compared: noted tokens and their log probabilities, which --msprobe-match inference compares"

    def _unused(self) -> Iterator[str]:
        unused = list(dict.fromkeys(note for pair in self._pairs for note in pair.unused_mappings))
        yield from (f"mapping without effect: {note}" for note in unused[:_SHOWN])
        if len(unused) > _SHOWN:
            yield f"mapping without effect: {len(unused) - _SHOWN} more"
        transformations = self._pairs[0].transformations
        if transformations is None:
            return
        dumps = [(pair.target, pair.golden) for pair in self._pairs]
        without = transformations.without_effect(*zip(*dumps, strict=True))
        yield from (f"transformation without effect: {note}" for note in without)

    def _overview(self) -> Iterator[str]:
        """Return a table of ranks by steps: the worst that came of each pair and how many calls are wrong.

        A step of a training has a column for each of its stages.
        """
        columns = {pair.index: _step_folders(pair) for pair in self._pairs}
        cells = {(pair.rank, columns[pair.index]): self._cell(pair) for pair in self._pairs}
        ranks = sorted({rank for rank, _ in cells}, key=lambda rank: -1 if rank is None else rank)
        in_order = sorted(self._pairs, key=lambda pair: (pair.stage, -1 if pair.step is None else pair.step))
        steps = [*dict.fromkeys(columns[pair.index] for pair in in_order)]
        header = ["", *steps]
        rows = [
            ["-" if rank is None else f"rank{rank}", *(cells.get((rank, step), "") for step in steps)] for rank in ranks
        ]
        widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
        yield "wrong calls by rank and step:"
        for row in (header, *rows):
            yield "  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))

    def _cell(self, pair: DumpPair) -> str:
        counts = self._outcomes[pair.index]
        if not counts:
            return "not run"
        if counts["fail"] or counts["warn"]:
            return str(counts["fail"]) if counts["fail"] else f"{counts['warn']} warned"
        return "ok" if counts["pass"] else "not compared"


def _step_folders(pair: DumpPair) -> str:
    """Return the folders of a pair's stage and step."""
    names = [pair.stage] if pair.stage else []
    names += [f"step{pair.step}"] if pair.step is not None else []
    return "/".join(names) or "-"


def _fuzzy_hint(pair: DumpPair, calls: Sequence[ComparedCall], reshaped: ComparedCall | None) -> Iterator[str]:
    """Yield what to do where culprits may be calls that were compared with others than their partners."""
    if not pair.unmatched or pair.fuzzy:
        return
    matches = pair.matching.matches
    doubtful = reshaped or next((call for call in calls if pair.may_be_other_call(matches[call.order])), None)
    if doubtful is not None:
        which = "calls of different shapes were compared" if reshaped else "calls were paired by their numbers"
        lonely = f"{counted(pair.unmatched, 'call')} {'has' if pair.unmatched == 1 else 'have'}"
        yield (
            f"{which}, such as {doubtful.record}, and {lonely} no partner: "
            "pair calls by order and shapes with -o msprobe_fuzzy=true"
        )


def _kind(pair: DumpPair, call: ComparedCall) -> str:
    if pair.target.level == "debug":
        return _SAVED
    return _FORWARD if is_forward(call.record) else _BACKWARD


def place_words(pair: DumpPair) -> str:
    """Return a pair's stage, step and rank in words."""
    words = [f"stage {pair.stage}"] if pair.stage else []
    words += [f"step {pair.step}"] if pair.step is not None else []
    words += [f"rank {pair.rank}"] if pair.rank is not None else []
    return ", ".join(words) or str(pair.target.path)


def _finding(call: ComparedCall) -> str:
    rows = [row for row in call.rows if row.outcome == call.outcome]
    if not rows:
        return f"{call.record} ({call.reason})"
    worst = max(rows, key=lambda row: (row.group == "output", row.metrics.get(SCALED_ERROR, 0.0)))
    return f"{call.record} ({worst.place}: {'; '.join([worst.messages[-1], *worst.transformed])})"


def _place(pair: DumpPair, call: ComparedCall, inputs: Given) -> Iterator[str]:
    if inputs.change:
        yield inputs.change
    settings = [row.setting for row in call.rows if row.setting]
    if settings:
        yield f"set otherwise: {listed(settings, _SHOWN)}"
    entering = [
        f"{row.place} ({row.messages[-1]})"
        for row in call.rows
        if row.group == "input" and row.differs and not row.setting and row.messages[-1] not in inputs.headline
    ]
    if inputs.more_weights:
        yield f"weights that differ, too: {listed(inputs.more_weights, _SHOWN)}"
    if entering:
        yield f"its inputs differ, too: {listed(entering, _SHOWN)}"
    within = [
        row.place for row in call.rows if row.group == "input" and not row.differs and row.metrics.get(SCALED_ERROR)
    ]
    if within:
        yield f"its inputs differ within the limit: {listed(within, _SHOWN)}"
    if entering or within:
        yield from _called_by_one_run(pair, call)
    if call.forward_difference == "within the limit":
        yield "its forward call differs within the limit, from whose values gradients are computed"
    yield from _where(call)


def _called_by_one_run(pair: DumpPair, call: ComparedCall) -> Iterator[str]:
    """Yield the calls before a call that one run alone made, nearest first: its inputs may differ for them."""
    target = {match.target for match in pair.matching.matches if match.golden is None}
    golden = {match.golden for match in pair.matching.matches if match.target is None}
    for side, dump, last, alone in (
        ("the target", pair.target, call.target, target),
        ("the golden run", pair.golden, call.golden, golden),
    ):
        names = [record for record in takewhile(last.__ne__, dump.records) if record in alone]
        if names:
            yield f"before it {side} alone called {listed(names[::-1], _SHOWN)}"


def _where(call: ComparedCall) -> Iterator[str]:
    if call.module:
        yield f"in {call.module}"
    yield from (" ".join(frame.split()) for frame in relevant_frames(call.stack, _FRAMES_SHOWN))
