"""What the reports of a run over communication say: which ranks there are, and the first call that differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from msprobe_hooks.dump.communication.calls import RankCalls
from msprobe_hooks.messages import counted
from pytest_msprobe.extensions.communication.messages import ranks_in_words
from pytest_msprobe.extensions.communication.steps import StepCommunication, alike_in_order
from pytest_msprobe.extensions.communication.unrecorded import unrecorded_lines
from pytest_msprobe.extensions.communication.waits import longest_wait
from pytest_msprobe.reports.text import one_line
from pytest_msprobe.results.result import decode_extra

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
        lines += [f"msprobe: rank {known.rank}: left out as malformed: {name}" for known, name in _malformed(step)]
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
    return [(known, known.malformed[0]) for known in step.ranks.values() if known.malformed]


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
