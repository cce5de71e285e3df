"""The closing section of a comparison of a training with an engine."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msprobe_hooks.messages import counted, listed
from pytest_msprobe.extensions.inference.inference_pair import LOG_PROBABILITIES
from pytest_msprobe.modes.compare.rows import ComparedCall, ComparedCalls
from pytest_msprobe.reports.summary import write_section

if TYPE_CHECKING:
    import pytest

    from pytest_msprobe.extensions.inference.inference_pair import InferencePair

_OUTCOMES = {"pass": "within precision", "warn": "warned", "fail": "wrong", "skip": "not compared"}
_SHOWN = 4


class InferenceSummary:
    """Counts outcomes as reports arrive, and names at the end what differs first."""

    def __init__(self, pair: InferencePair, calls: ComparedCalls) -> None:
        self._pair = pair
        self._calls = calls
        self._outcomes: Counter[str] = Counter()
        self._reasons = defaultdict[str, list[str]](list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one item."""
        plain: dict[str, Any] | None = getattr(report, "msprobe", None)
        if plain is None:
            return
        outcome = plain["verdict"]["outcome"]
        self._outcomes[outcome] += 1
        if outcome == "skip":
            self._reasons[plain["verdict"]["reason"].rpartition(": ")[2]].append(plain["record"])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the section."""
        write_section(terminalreporter, bool(self._outcomes), self.lines)

    def lines(self, finished_before: Counter[str]) -> list[str]:
        """Return the section's lines, what differs first before all; ``finished_before`` counts what a journal had."""
        calls = list(self._calls)
        lines = [*self.notes(), self._tokens()]
        counts = ", ".join(f"{self._outcomes[key]} {word}" for key, word in _OUTCOMES.items() if self._outcomes[key])
        lines.append(f"{counted(self._outcomes.total(), 'value')}: {counts}")
        if finished_before:
            before = ", ".join(f"{count} {_OUTCOMES.get(key, key)}" for key, count in finished_before.items())
            lines.append(f"finished before this run, not included above: {before}")
        lines += [f"not compared, {reason}: {listed(names, _SHOWN)}" for reason, names in self._reasons.items()]
        return [*lines, *self._left_out(calls), *self._unmatched()]

    def notes(self) -> list[str]:
        """Return what is said before any of the values: weights, the first module that differs, log probabilities."""
        calls = list(self._calls)
        lost = self._pair.lost_tokens
        return [*([lost] if lost else []), *self._weights(calls), *self._first(calls), *self._log_probabilities(calls)]

    def _tokens(self) -> str:
        pairs = self._pair.pairs
        return (
            f"{counted(len(pairs), 'token')} of {counted(len(pairs.requests), 'request')} in both runs"
            + (f"; {pairs.target_only} in the target alone" if pairs.target_only else "")
            + (f"; {pairs.golden_only} in the golden run alone" if pairs.golden_only else "")
        )

    def _weights(self, calls: list[ComparedCall]) -> Iterator[str]:
        rows = [row for call in calls for row in call.rows if row.group == "parameters"]
        wrong = [row for row in rows if row.differs]
        if wrong:
            compared = [row for row in rows if row.outcome != "skip"]
            yield (
                f"weights differ already, {len(wrong)} of {counted(len(compared), 'parameter')} in both runs: "
                f"{listed((row.place for row in wrong), _SHOWN)} ({wrong[0].messages[0].rpartition(': ')[2]})"
            )

    def _first(self, calls: list[ComparedCall]) -> Iterator[str]:
        values = [call for call in calls if call.record != LOG_PROBABILITIES]
        culprits = [(call, row) for call in values for row in call.rows if _differs_here(call, row)]
        wrong = [(call, row) for call, row in culprits if row.outcome == "fail" and call.outcome == "fail"]
        if not wrong:
            if self._outcomes["pass"] or self._outcomes["warn"]:
                yield "no module differs by more than the two precisions explain"
        else:
            call, row = wrong[0]
            yield f"first module that differs: {call.record} ({row.messages[0]})"
            if hint := self._pair.advice(call.record):
                yield f"    {hint}"
            if len(wrong) > 1:
                yield f"    others that add to the error: {listed((each.record for each, _ in wrong[1:]), _SHOWN)}"
            inherited = sum(each.cause == "inherited" for each in values)
            if inherited:
                yield f"    {counted(inherited, 'value')} after it inherited the error"
        grown = next((call for call in values if call.outcome == "warn" and call.cause), None)
        if grown is not None and not wrong:
            message = grown.rows[-1].messages[0]
            yield f"    rounding adds up beyond the limit from {grown.record} on, by no single module ({message})"
        coarser = [call for call in values if call.outcome == "warn" and not call.cause]
        if coarser:
            names = listed((call.record for call in coarser), _SHOWN)
            yield f"rounded more coarsely by one run: {names} ({coarser[0].rows[-1].messages[0]})"

    def _log_probabilities(self, calls: list[ComparedCall]) -> Iterator[str]:
        call = next((each for each in calls if each.record == LOG_PROBABILITIES), None)
        if call is not None and call.outcome != "skip":
            yield f"log probabilities: {call.reason}"
            found = self._pair.log_probabilities
            if found is not None and call.outcome != "pass":
                for place in found.worst(_SHOWN):
                    at = self._pair.pairs.label(int(found.pairs[place]), found.ahead)
                    yield f"    {found.target[place]:.4f} against {found.golden[place]:.4f} at {at}"
        elif call is None:
            problem = self._pair.log_probabilities_problem
            yield f"log probabilities not compared: {problem or 'a run has neither logits nor noted ones'}"
        yield from self._pair.evidence_notes

    def _left_out(self, calls: list[ComparedCall]) -> Iterator[str]:
        most = max((row.metrics.get("left_out", 0) for call in calls for row in call.rows), default=0)
        if most:
            yield f"{counted(int(most), 'token')} left out behind routers that chose other experts within rounding"
        reasons = defaultdict[str, list[str]](list)
        for call in calls:
            for row in call.rows:
                if row.group == "parameters" and row.outcome == "skip":
                    reasons[row.messages[0].removeprefix("not compared: ")].append(row.place)
        yield from (f"weights not compared, {reason}: {listed(names, _SHOWN)}" for reason, names in reasons.items())
        if not any(row.group == "parameters" for call in calls for row in call.rows):
            yield "weights not compared: no parameter is recorded in both runs"

    def _unmatched(self) -> Iterator[str]:
        pair = self._pair
        known = {*pair.values}
        for side, run in (("target", pair.target), ("golden run", pair.golden)):
            names = [name for name in run.sources if name not in known and not _is_compared_otherwise(name)]
            if names:
                yield f"in the {side} alone: {listed(names, _SHOWN)}"


def _is_compared_otherwise(name: str) -> bool:
    """Return whether a value is in another: as rotated queries and keys, as the input of ``o_proj``, as the norm."""
    return name.startswith("rotary_emb") or name.endswith(".self_attn.attn") or name == "model"


def _differs_here(call: ComparedCall, row: Any) -> bool:
    return row.group != "parameters" and row.differs and call.cause == "culprit"
