"""The verdict on a communication over all ranks."""

from __future__ import annotations

import math

import msgspec

from msprobe_hooks.dump.communication.calls import Call
from msprobe_hooks.dump.communication.exchanges import Exchange
from msprobe_hooks.dump.communication.fused import FUSED
from msprobe_hooks.dump.schema import TensorElement
from msprobe_standards.verdict import Verdict
from pytest_msprobe.extensions.communication.fused_check import compare_fused
from pytest_msprobe.extensions.communication.messages import between, format_communication, ranks_in_words
from pytest_msprobe.extensions.communication.report import EXTRA, Alarm
from pytest_msprobe.extensions.communication.signature_check import Finding, split_finding, structural_findings
from pytest_msprobe.extensions.communication.steps import StepCommunication
from pytest_msprobe.extensions.communication.value_check import Compared, compare_values, digest_of
from pytest_msprobe.results.result import DirectionResult
from pytest_msprobe.results.skip_reasons import BaseSkipReason, SkipReason

STANDARD = "communication"

_STATES_SHOWN = 8


class CommunicationSkip(BaseSkipReason):
    """Why a communication is not judged."""

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
    known = step.last_agreeing
    found, passed = exchange.previous, [exchange]
    while found is not None and found.order not in known and not _agrees(found, step):
        passed.append(found)
        found = found.previous
    if found is not None:
        found = known.get(found.order, found)
    # One failure is often followed by as many as there are calls, which would all look back to the same one.
    known.update((one.order, found) for one in passed)
    return found


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
