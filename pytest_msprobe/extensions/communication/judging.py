"""The verdict on a communication over all ranks, and the report on a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from msprobe_hooks.dump.communication.collectives import FUSED
from msprobe_hooks.dump.communication.jsonl import Call, RankCalls
from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.messages import counted
from msprobe_standards.verdict import Verdict
from pytest_msprobe.extensions.communication.exchanges import Exchange
from pytest_msprobe.extensions.communication.fused_check import compare_fused
from pytest_msprobe.extensions.communication.messages import (
    StepCommunication,
    alike_in_order,
    between,
    format_communication,
    longest_wait,
    ranks_in_words,
    unrecorded_lines,
)
from pytest_msprobe.extensions.communication.signature_check import Finding, split_finding, structural_findings
from pytest_msprobe.extensions.communication.value_check import Compared, compare_values, digest_of
from pytest_msprobe.reports.text import one_line
from pytest_msprobe.results.outcomes import BaseSkipReason, SkipReason
from pytest_msprobe.results.result import DirectionResult, decode_extra

#: The name of this extra of a result.
EXTRA: Final = "communication"


_OTHERS_SHOWN = 5


class Alarm(msgspec.Struct, frozen=True):
    """A communication that differs: its place among those of its step, in words what is wrong, on which ranks.

    ``last`` is the one before it that agrees, ``states`` where the recordings of its ranks ended.
    """

    order: int
    step: str
    place: str
    words: list[str]
    ranks: list[int]
    last: str
    states: list[str]


def alarm_of(extras: Mapping[str, Any]) -> Alarm | None:
    """Return what a result says of communication; None where it says nothing."""
    return decode_extra(extras, EXTRA, Alarm)


def header_lines(steps: Sequence[StepCommunication], places: Mapping[Path, str]) -> list[str]:
    """Return the ranks of all steps, how often they communicated, and of each step what is missing or was cut off."""
    lines = ["msprobe: communication over all ranks", _in_one_line(steps, places)]
    for step in steps:
        place = places[step.step.folder]
        if step.absent:
            lines.append(f"msprobe: {place}: no dump of {ranks_in_words(step.absent)}")
        lines += [f"msprobe: {step.step.ranks[rank].path}: {problem}" for rank, problem in step.problems.items()]
        lines += [f"msprobe: rank {calls.rank}: left out as malformed: {name}" for calls, name in _malformed(step)]
    return lines


def _in_one_line(steps: Sequence[StepCommunication], places: Mapping[Path, str]) -> str:
    first, last = (places[step.step.folder] for step in (steps[0], steps[-1]))
    shown = first if len(steps) == 1 else f"{len(steps)} steps, {first} to {last}"
    ranks = ranks_in_words({rank for step in steps for rank in step.ranks})
    exchanges = sum(len(step.exchanges) for step in steps)
    calls = sum(len(rank.calls) for step in steps for rank in step.ranks.values())
    return f"msprobe: {shown}: {ranks}, {counted(calls, 'call')}, {counted(exchanges, 'communication')}"


def _malformed(step: StepCommunication) -> list[tuple[RankCalls, str]]:
    """Return the first malformed record of each rank that has one."""
    return [(calls, calls.malformed[0]) for calls in step.ranks.values() if calls.malformed]


class CommunicationReport:
    """Collects what differs as reports arrive; in the end the earliest leads."""

    #: What a resumed journal had finished may have differed earlier.
    hears_finished = True

    def __init__(self, steps: Sequence[StepCommunication]) -> None:
        self._steps = steps
        self._folders = [str(step.step.folder) for step in steps]
        self._alarms: list[Alarm] = []
        self._has_judged = False
        self._has_calls = any(step.exchanges for step in steps)
        self._steps = steps

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what differs."""
        plain = getattr(report, "msprobe", None)
        self._has_judged |= plain is not None
        alarm = alarm_of(plain["extras"]) if plain is not None else None
        if alarm is not None:
            self._alarms.append(alarm)

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the section."""
        if terminalreporter.config.option.collectonly:
            return
        terminalreporter.section("msprobe communication")
        for line in self.lines():
            terminalreporter.line(one_line(line))

    def lines(self) -> Iterator[str]:
        """Yield the section's lines."""
        if not self._alarms:
            yield self._nothing()
            yield from self._about_times_and_order() if self._has_judged else ()
            yield from unrecorded_lines(self._steps)
            return
        first, *others = sorted(self._alarms, key=self._when)
        yield f"first that differs{self._where(first)}: {first.place}"
        yield from (f"  {line}" for line in (*first.words, first.last, *first.states))
        for other in others[:_OTHERS_SHOWN]:
            yield f"then{self._where(other)}: {other.place}: {other.words[0]}"
        if len(others) > _OTHERS_SHOWN:
            yield f"and {len(others) - _OTHERS_SHOWN} more"
        yield from longest_wait(self._steps)
        yield from unrecorded_lines(self._steps)

    def _nothing(self) -> str:
        if self._has_judged:
            return "no communication differs between ranks"
        if self._has_calls:
            return "no communication was judged: all items are left out, as by -k or -m, or the run ended before them"
        return "no communication calls in these dumps"

    def _about_times_and_order(self) -> Iterator[str]:
        yield from longest_wait(self._steps)
        alike = sum(map(alike_in_order, self._steps))
        count = sum(len(step.exchanges) for step in self._steps)
        if alike:
            whole = counted(count, "communication")
            yield (
                f"{alike} of {whole} have others of the same operation, dtype and shape: if a rank swaps two of "
                "these, no difference is seen"
            )

    def _when(self, alarm: Alarm) -> tuple[int, int]:
        step = self._folders.index(alarm.step) if alarm.step in self._folders else len(self._folders)
        return step, alarm.order

    def _where(self, alarm: Alarm) -> str:
        return f" in {alarm.step}" if len(self._folders) > 1 else ""


STANDARD = "communication"

_STATES_SHOWN = 8


class CommunicationSkip(BaseSkipReason):
    """Reason why a communication is not judged."""

    NO_PARTNERS = "the record does not name the ranks that it communicates with"
    TAKEN_FROM_ANY = "no receive names the sender, and the other rank has a receive from any rank"


def judge_exchange(name: str, exchange: Exchange, step: StepCommunication) -> DirectionResult:
    """Judge a communication. Raises DumpError where a record or a tensor's file is unusable."""
    if _may_be_taken(exchange, step):
        return _skipped(name, CommunicationSkip.TAKEN_FROM_ANY)
    findings = list(structural_findings(exchange, step))
    if not findings:
        findings += filter(None, [split_finding(exchange, step)])
    compared = Compared() if findings else _compared(exchange, step)
    if compared.finding is not None:
        findings = [compared.finding]
    return _differing(name, exchange, step, findings) if findings else _agreeing(name, exchange, step, compared)


def judge_unmatched(name: str) -> DirectionResult:
    """Return the result of a call that does not say with whom it communicates."""
    return _skipped(name, CommunicationSkip.NO_PARTNERS)


def _compared(exchange: Exchange, step: StepCommunication) -> Compared:
    def read_bits(call: Call, element: TensorElement) -> str | None:
        return digest_of(element, step.dump(call).tensor_folder)

    if exchange.members[0][1].operation in FUSED:
        if any(call.progress != "ended" or not call.is_recorded for call, _ in exchange.members):
            return Compared()
        return compare_fused(exchange, step, read_bits)
    return compare_values(exchange, step, read_bits)


def _may_be_taken(exchange: Exchange, step: StepCommunication) -> bool:
    """Return whether a message without a receive may have been taken by one that takes from any rank."""
    if not exchange.is_point_to_point or not exchange.members[0][1].gives:
        return False
    return bool(exchange.missing & step.takers)


def _agreeing(name: str, exchange: Exchange, step: StepCommunication, compared: Compared) -> DirectionResult:
    absent = exchange.missing - step.ranks.keys()
    if absent:
        reason = f"no dump of {ranks_in_words(absent)}, which took part"
        return DirectionResult(name, Verdict("warn", STANDARD, reason))
    if compared.skip is not None:
        return _skipped(name, compared.skip, compared.detail)
    if not exchange.expected and len(exchange.members) == 1:
        return _skipped(name, CommunicationSkip.NO_PARTNERS)
    if compared.rounding:
        reason = "maxima and minima are equal; means or norms differ by rounding"
        return DirectionResult(name, Verdict("warn", STANDARD, reason))
    if not compared.has_values:
        return DirectionResult(name, Verdict("pass", STANDARD, "the calls agree; ranks keep values of their own"))
    if compared.means is None:
        return _skipped(name, SkipReason.NO_STATISTICS)
    return DirectionResult(name, Verdict("pass", STANDARD, f"calls and values agree, by {compared.means}"))


def _skipped(name: str, why: BaseSkipReason, detail: str = "") -> DirectionResult:
    return DirectionResult(name, Verdict("skip", "", f"{why.value}: {detail}" if detail else why.value), skip=why)


def _differing(name: str, exchange: Exchange, step: StepCommunication, findings: list[Finding]) -> DirectionResult:
    words = [finding.words for finding in findings]
    before = _last_agreeing(exchange, step)
    last = (
        f"last that agrees: {format_communication(before)}" if before else f"no earlier one {between(exchange)} agrees"
    )
    ranks = sorted(frozenset[int]().union(*(finding.ranks for finding in findings)))
    # Where a rank is missing or stopped, the last call of each rank shows who waits for whom.
    states = _states(exchange, step) if _is_interrupted(exchange, step) else []
    place = format_communication(exchange)
    verdict = Verdict("fail", STANDARD, "\n".join([*words, place, last, *states]), margin=math.inf)
    alarm = Alarm(exchange.order, str(step.step.folder), place, words, ranks, last, states)
    return DirectionResult(name, verdict).with_extra(EXTRA, msgspec.to_builtins(alarm))


def _last_agreeing(exchange: Exchange, step: StepCommunication) -> Exchange | None:
    """Return the last exchange before this one, in the same group or between the same ranks, that agrees."""
    agreeing = step.last_agreeing
    candidate, passed = exchange.previous, [exchange]
    while candidate is not None and candidate.order not in agreeing and not _agrees(candidate, step):
        passed.append(candidate)
        candidate = candidate.previous
    if candidate is not None:
        candidate = agreeing.get(candidate.order, candidate)
    # One failure is often followed by as many as there are calls, which would all look back to the same one.
    agreeing.update((one.order, candidate) for one in passed)
    return candidate


def _agrees(exchange: Exchange, step: StepCommunication) -> bool:
    return not any(structural_findings(exchange, step)) and _compared(exchange, step).finding is None


def _is_interrupted(exchange: Exchange, step: StepCommunication) -> bool:
    has_stopped = any(call.progress in ("began", "raised") for call, _ in exchange.members)
    return has_stopped or bool(exchange.missing & step.ranks.keys())


def _states(exchange: Exchange, step: StepCommunication) -> list[str]:
    concerned = sorted(exchange.expected & step.ranks.keys())
    states = [step.state(rank) for rank in concerned[:_STATES_SHOWN]]
    more = len(concerned) - len(states)
    return [*states, f"and {more} more ranks"] if more > 0 else states
