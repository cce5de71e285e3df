"""Communications as items, each of the first rank that took part, and their page with a lane for each rank."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from msprobe_hooks.dump.communication.jsonl import Call
from msprobe_hooks.messages import counted
from pytest_msprobe.extensions.communication.exchanges import Exchange
from pytest_msprobe.extensions.communication.judging import alarm_of, judge_exchange, judge_unmatched
from pytest_msprobe.extensions.communication.messages import (
    StepCommunication,
    Wait,
    between,
    longest_wait,
    unrecorded_lines,
    waits_of,
)
from pytest_msprobe.reports.lanes_page import LaneCall, Lanes, write_lanes_page
from pytest_msprobe.reports.page_file import Results
from pytest_msprobe.results.result import DirectionResult
from pytest_msprobe.run import marks
from pytest_msprobe.run.collection import dump_of_id
from pytest_msprobe.run.item import JudgedItem
from pytest_msprobe.run.rerun_command import display_path, rerun_step

if TYPE_CHECKING:
    import pytest

    from msprobe_standards.verdict import Verdict


class CommunicationItem(JudgedItem):
    """One communication over all ranks of a step; ``exchange`` is None where a call does not say with whom it is."""

    # Nothing here runs on a device.
    is_isolated = False

    def __init__(self, *, call: Call, exchange: Exchange | None, step: StepCommunication, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._call = call
        self._exchange = exchange
        self._step = step

    def judge(self) -> DirectionResult:
        """Judge the communication."""
        if self._exchange is None:
            return judge_unmatched(self.name)
        return judge_exchange(self.name, self._exchange, self._step)

    def mark_names(self) -> list[str]:
        """Return the marks of the first rank's record."""
        dump = self._step.dump(self._call)
        return marks.of_record(dump, self._call.name) if self._call.is_recorded else [dump.framework]

    def may_be_marked(self, name: str) -> bool:
        """Return whether it is a mark of records."""
        return name in marks.known()

    def warning(self, verdict: Verdict) -> str:
        """Return why it warns: what holds of many communications is one warning."""
        return f"communication: {verdict.reason}"


def communication_items(file: pytest.File, rank: int, step: StepCommunication) -> Iterator[CommunicationItem]:
    """Yield an item for each communication of which a rank is the first that took part, in their order."""
    for name, call, exchange in named_exchanges(rank, step):
        yield CommunicationItem.from_parent(file, name=name, call=call, exchange=exchange, step=step)


def named_exchanges(rank: int, step: StepCommunication) -> Iterator[tuple[str, Call, Exchange | None]]:
    """Yield the name of each item of a rank, with its call, and its communication where the call says with whom."""
    names = Counter[str]()
    for exchange in step.exchanges:
        if exchange.lead.rank == rank:
            name = _name(exchange)
            names[name] += 1
            unique = name if names[name] == 1 else f"{name.removesuffix(']')} #{names[name]}]"
            yield unique, exchange.lead, exchange
    for call in step.ranks[rank].calls:
        if not call.ends:
            yield call.name, call, None


def _name(exchange: Exchange) -> str:
    """Return the name of the first rank's record; of one of several messages of a batch with its ends."""
    lead = exchange.lead
    return lead.name if len(lead.ends) == 1 else f"{lead.name}[{between(exchange)}]"


_WORST_FIRST = ("fail", "warn", "skip", "pass")
# What a call of a communication that differs is shown as, but for that of a partner.
_WRONG = ("fail", "missing")
_STATES = {"ended": "", "raised": "raised", "launched": "never waited for", "began": "did not return"}
# Seconds; below this a wait is what any machine has.
_LEAST_WAIT = 1e-3

#: A call by the number of its step, its rank and its place on the rank.
_Place = tuple[int, int, int]


@dataclass(slots=True)
class _Facts:
    """Facts of a call: its communications with what came of them, and the ranks that it waited for."""

    exchanges: list[Exchange] = field(default_factory=list)
    results: list[DirectionResult] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)


def write_communication_page(
    path: Path, results: Results, *, config: pytest.Config, steps: Sequence[StepCommunication], folders: Sequence[str]
) -> None:
    """Write the page of what came of all communications. Raises OSError where the disk refuses."""
    by_record = {(dump_of_id(config, item), result.record): result for item, result in results.items()}
    dumps = [display_path(config, own.path) for step in steps for own in step.step.ranks.values()]
    lanes = replace(communication_lanes(steps, folders, by_record), dumps=dumps, commands=[rerun_step(config)])
    write_lanes_page(path, lanes, title="Communication")


def communication_lanes(
    steps: Sequence[StepCommunication], folders: Sequence[str], results: Mapping[tuple[Path, str], DirectionResult]
) -> Lanes:
    """Return the calls of each rank and step, those of one communication one above the other.

    Of one that differs the ranks that differ are wrong, the others partners; a rank without the call has a cell for it.
    """
    several = len(steps) > 1
    lanes: list[str] = []
    calls: list[LaneCall] = []
    places: dict[_Place, int] = {}
    lane_of: dict[tuple[int, int], int] = {}
    facts = _facts(steps, results)
    first_column = 0
    for number, step in enumerate(steps):
        for rank, own in step.ranks.items():
            lanes.append(f"{folders[number]}, rank {rank}" if several else f"rank {rank}")
            column, lane_of[number, rank] = first_column, len(lanes) - 1
            for call in own.calls:
                facts_of_call = facts[number, rank, call.place]
                # A call without partners follows the one before it.
                column = max([column, *(first_column + exchange.order for exchange in facts_of_call.exchanges[:1])])
                places[number, rank, call.place] = len(calls)
                calls.append(_lane_call(len(lanes) - 1, column, call, facts_of_call))
                column += 1
        first_column += len(step.exchanges)
    joins: list[list[int]] = []
    for number, step in enumerate(steps):
        for exchange in step.exchanges:
            joins.append([places[number, call.rank, call.place] for call, _ in exchange.members])
            lead = calls[joins[-1][0]]
            if lead.outcome not in ("fail", "partner"):
                continue
            for rank in sorted(exchange.missing & step.ranks.keys()):
                joins[-1].append(len(calls))
                calls.append(LaneCall(lane_of[number, rank], lead.column, lead.name, "missing", why=lead.why))
    judged_by = {
        (number, call.rank, call.place): (lane_of[number, rank], name)
        for number, step in enumerate(steps)
        for rank in step.ranks
        for name, lead_call, exchange in named_exchanges(rank, step)
        for call, _ in (exchange.members if exchange is not None else [(lead_call, None)])
    }
    for place, item in judged_by.items():
        shown = calls[places[place]]
        if item != (shown.lane, shown.name):
            calls[places[place]] = replace(shown, item=item)
    first = _mark_first(calls, joins)
    wrong = sum(result.outcome == "fail" for result in results.values())
    exchanges = sum(len(step.exchanges) for step in steps)
    place_of_first = "" if first is None else f", first {first.name}, {lanes[first.lane]}"
    return Lanes(
        title=f"{wrong} of {counted(exchanges, 'communication')} differ between ranks{place_of_first}",
        about=", ".join([*folders[:1], *([f"{len(steps)} steps"] if several else []), counted(len(calls), "call")]),
        lanes=lanes,
        calls=calls,
        notes=[*longest_wait(steps), *unrecorded_lines(steps)],
        joins=[join for join in joins if len(join) > 1],
        kind_title="State",
    )


def _facts(
    steps: Sequence[StepCommunication], results: Mapping[tuple[Path, str], DirectionResult]
) -> Mapping[_Place, _Facts]:
    facts = defaultdict[_Place, _Facts](_Facts)
    for number, step in enumerate(steps):
        for rank in step.ranks:
            path = step.step.ranks[rank].path
            for name, call, exchange in named_exchanges(rank, step):
                result = results.get((path, name))
                for member, _ in exchange.members if exchange is not None else [(call, None)]:
                    facts_of_call = facts[number, member.rank, member.place]
                    facts_of_call.exchanges += [exchange] if exchange is not None else []
                    facts_of_call.results += [result] if result is not None else []
        for wait in waits_of(step):
            if wait.seconds >= _LEAST_WAIT:
                facts[number, wait.call.rank, wait.call.place].waits.append(wait)
    return facts


def _lane_call(lane: int, column: int, call: Call, facts: _Facts) -> LaneCall:
    worst = min(facts.results, key=lambda result: _WORST_FIRST.index(result.outcome), default=None)
    wait = max(facts.waits, key=lambda one: one.seconds, default=None)
    state = _STATES[call.progress] or (f"waited {wait.seconds:.3g} s" if wait is not None else "")
    if worst is None:
        return LaneCall(lane, column, call.name, "", state, "", tuple(_details(call, facts, "")))
    why, _, story = worst.verdict.reason.partition("\n")
    details, alarm = tuple(_details(call, facts, story)), alarm_of(worst.extras)
    is_partner = alarm is not None and bool(alarm.ranks) and call.rank not in alarm.ranks
    outcome = "partner" if is_partner else worst.outcome
    return LaneCall(lane, column, call.name, outcome, state, "" if worst.outcome == "pass" else why, details)


def _details(call: Call, facts: _Facts, story: str) -> Iterator[tuple[str, str]]:
    if facts.exchanges:
        yield "With whom", "\n".join(dict.fromkeys(map(between, facts.exchanges)))
    if story:
        yield "What was found", story
    waits = [f"rank {wait.late.rank} began {wait.seconds:.3g} s later" for wait in facts.waits]
    if waits:
        yield "Waited for", "\n".join(waits)
    if call.lasted is not None:
        yield "Lasted", f"{call.lasted:.3g} s"
    if not call.is_recorded:
        yield "Record", "the dump has no record of it: it is known from communication.jsonl"


def _mark_first(calls: list[LaneCall], joins: Sequence[Sequence[int]]) -> LaneCall | None:
    """Mark the earliest communication that differs on the ranks that differ, and return the call of the first."""
    wrong = [place for place, call in enumerate(calls) if call.outcome in _WRONG]
    if not wrong:
        return None
    first = min(wrong, key=lambda place: (calls[place].column, calls[place].outcome != "fail", calls[place].lane))
    for place in next((join for join in joins if first in join), [first]):
        if calls[place].outcome in _WRONG:
            calls[place] = replace(calls[place], begins=True)
    return calls[first]
