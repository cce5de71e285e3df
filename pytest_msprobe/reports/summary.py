"""The closing section on the terminal: verdicts, skips by reason, the worst APIs."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec
import pytest

from msprobe_hooks.messages import counted, listed
from pytest_msprobe.reports.failed_apis import FailedApis
from pytest_msprobe.reports.junit import card_of_properties
from pytest_msprobe.reports.text import one_line
from pytest_msprobe.reports.worst_margins import AT_MOST
from pytest_msprobe.results.outcomes import UNFINISHED
from pytest_msprobe.results.result import LITTLE_JUDGED, Start

_WORST_SHOWN = 5
# What pytest lists without ``-r``: failures and errors.
_DEFAULT_LETTERS = "fE"

_OUTCOMES = {"pass": "passed", "warn": "warned", "fail": "failed", "skip": "skipped"}


class Tally(Protocol):
    """Count of a summary besides those of verdicts."""

    def add(self, extras: Mapping[str, Any]) -> None:
        """Count the extras of one record's result."""

    def lines(self) -> list[str]:
        """Return the lines for the summary; none where nothing was counted."""


#: How many items of this run a resumed journal had finished, by outcome.
finished_before_key = pytest.StashKey[Counter[str]]()

#: Whether a line above the first item has said what items run on.
start_shown_key = pytest.StashKey[bool]()


def write_section(
    reporter: pytest.TerminalReporter, has_counted: bool, lines: Callable[[Counter[str]], Iterable[str]]
) -> None:
    """Write a summary's section where anything was counted, in this run or before it by the journal that it resumes."""
    before = reporter.config.stash.get(finished_before_key, Counter())
    if has_counted or before:
        reporter.section("msprobe")
        for line in lines(before):
            reporter.line(one_line(line))
        items = sum(len(reporter.stats.get(outcome, ())) for outcome in ("passed", "failed", "skipped", "error"))
        workers = len(reporter.config.getoption("tx", None) or ())
        if workers > max(items, 2):
            reporter.line(
                f"{workers} workers were started for {counted(items, 'item')}: each costs its start; use -n {items}"
            )


class FailureList:
    """Failures that a terminal lists: those that follow from others, often thousands, only with ``-v`` or ``-r``."""

    def __init__(self, is_listed: Callable[[pytest.TestReport], bool]) -> None:
        self._is_listed = is_listed

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
        """Leave the others out while pytest lists failures, not of its counts."""
        config, failed = terminalreporter.config, terminalreporter.stats.get("failed", [])
        if failed and config.get_verbosity() <= 0 and config.getoption("reportchars") == _DEFAULT_LETTERS:
            # A run of one such item is about that item.
            terminalreporter.stats["failed"] = list(filter(self._is_listed, failed)) or failed
        try:
            return (yield)
        finally:
            if failed:
                terminalreporter.stats["failed"] = failed


class Summary:
    """Counts what comes of records as their reports arrive.

    ``lists_worst`` where their margins are of interest, ``names_weak`` where passes with weak evidence are named.
    """

    def __init__(
        self,
        module_records: int,
        kind: str = "API records",
        tallies: Sequence[Tally] = (),
        *,
        lists_worst: bool = True,
        names_weak: bool = False,
    ) -> None:
        self._tallies = tallies
        self._lists_worst = lists_worst
        self._names_weak = names_weak
        self._weak: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        self._starts: dict[str, str] = {}
        self._by_card: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._kind = kind
        self._module_records = module_records
        self._outcomes: Counter[str] = Counter()
        self._breakdowns: Counter[str] = Counter()
        self._skips: Counter[str] = Counter()
        self._skipped_tests: defaultdict[str, set[str]] = defaultdict(set)
        self._is_start_shown = False
        self._failed = FailedApis(kind)
        self._worst: list[tuple[float, str, str, str, str, str]] = []
        self._dumps: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one record."""
        self.hear_start(report)
        plain = getattr(report, "msprobe", None)
        if plain is not None:
            path, _, name = report.location
            self._dumps.add(path)
            self.add(plain, name, card_of_properties(report.user_properties))

    def hear_start(self, report: pytest.TestReport) -> None:
        """Note what a process runs items on, where the report is the first that says it."""
        started = getattr(report, "msprobe_start", None)
        if started is not None:
            start = msgspec.convert(started, Start)
            self._starts[start.place] = str(start)

    def add(self, plain: dict[str, Any], name: str = "", card: str = "", skipped_test: str = "") -> None:
        """Count a result that `to_plain` took apart.

        ``name`` differs from those of other dumps' records, ``card`` judged it, ``skipped_test`` was skipped for it.
        """
        verdict = plain["verdict"]
        self._outcomes[verdict["outcome"]] += 1
        self._by_card[card][verdict["outcome"]] += 1
        if plain["extras"]:
            if why := plain["extras"].get(LITTLE_JUDGED):
                self._weak[why].append((name, plain["record"]))
            for tally in self._tallies:
                tally.add(plain["extras"])
        self._failed.add(plain)
        breakdown = plain["breakdown"]
        if breakdown in UNFINISHED:
            self._breakdowns[breakdown] += 1
        if plain["skip"] is not None:
            self._skips[plain["skip"]] += 1
            if skipped_test:
                self._skipped_tests[plain["skip"]].add(skipped_test)
        elif verdict["margin"] > 0 and self._lists_worst:
            sign = AT_MOST if verdict.get("at_most") else ""
            excused = ", excused" if verdict["outcome"] == "pass" and verdict["reason"].startswith("excused") else ""
            decided_by = breakdown or f"{verdict['standard']}{excused}"
            entry = (verdict["margin"], plain["record"], name, card, decided_by, sign)
            (heapq.heappushpop if len(self._worst) >= _WORST_SHOWN else heapq.heappush)(self._worst, entry)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the section."""
        self._is_start_shown = terminalreporter.config.stash.get(start_shown_key, False)
        write_section(terminalreporter, bool(self._outcomes), self.lines)

    def lines(self, finished_before: Counter[str] | None = None) -> list[str]:
        """Return the section's lines; ``finished_before`` counts what a resumed journal had."""
        total = self._outcomes.total()
        kind = self._kind if total != 1 or self._kind == "series" else self._kind.removesuffix("s")
        lines = [f"{total} {kind}: {in_words(self._outcomes)}"]
        breakdowns = ", ".join(f"{self._breakdowns[kind]} {kind}" for kind in UNFINISHED if self._breakdowns[kind])
        if breakdowns:
            lines.append(f"failed without a verdict: {breakdowns}")
        if finished_before:
            lines += self._whole(finished_before)
        lines += self._cards()
        if self._module_records:
            one = self._module_records == 1
            what = "module record is not an API call and was" if one else "module records are not API calls and were"
            lines.append(f"{self._module_records} {what} not checked")
        lines += [f"{count} skipped{self._in_tests(why)}: {why}" for why, count in self._skips.most_common()]
        lines += self._weak_evidence()
        lines += [line for tally in self._tallies for line in tally.lines()]
        lines += self._failed.lines()
        worst = sorted(self._worst, reverse=True)
        if worst:
            lines.append("error / allowed, largest first (above 1 fails):")
        for margin, record, name, card, standard, sign in worst:
            shown = self._shown(name, record)
            where = f" on {card}" if card and len(self._starts) > 1 else ""
            lines.append(f"  {f'{sign}{margin:.3g}':>9}  {shown}{where}  ({standard})")
        return lines

    def _shown(self, name: str, record: str) -> str:
        return name if len(self._dumps) > 1 else record

    def _weak_evidence(self) -> Iterator[str]:
        """Yield how many passes say little, by the reason, and which."""
        for why, records in sorted(self._weak.items(), key=lambda item: -len(item[1])):
            line = f"{len(records)} passed with weak evidence: {why}"
            if self._names_weak:
                yield line
                yield f"    {listed(self._shown(*names) for names in records)}"
            else:
                yield f"{line} (names with -v)"

    def _in_tests(self, reason: str) -> str:
        tests = len(self._skipped_tests[reason])
        return f" ({tests} test{'s' * (tests > 1)})" if tests else ""

    def _cards(self) -> list[str]:
        """Return what records ran on, unless it has been shown; of several cards, what came of each."""
        if len(self._starts) < 2:
            return [] if self._is_start_shown else [f"on {start}" for start in self._starts.values()]
        return [f"on {card}: {in_words(self._by_card[card])} ({start})" for card, start in sorted(self._starts.items())]

    def _whole(self, finished_before: Counter[str]) -> list[str]:
        """Return what a resumed journal had finished, and what that makes with this run."""
        failures = {
            outcome: count for outcome, count in finished_before.items() if outcome not in ("pass", "warn", "skip")
        }
        lines = [f"{finished_before.total()} finished before: {in_words(finished_before)}"]
        if failures:
            kinds = ", ".join(f"{count} {outcome}" for outcome, count in failures.items())
            lines[0] += f" ({kinds}); --msprobe-rerun {','.join(failures)} checks these again"
        whole = finished_before + self._outcomes
        return [*lines, f"{whole.total()} in all: {in_words(whole)}"]


def in_words(outcomes: Counter[str]) -> str:
    """Return how many records ended with which verdict; those that ended without one failed."""
    verdicts = Counter[str]()
    for outcome, count in outcomes.items():
        verdicts[outcome if outcome in _OUTCOMES else "fail"] += count
    return ", ".join(f"{verdicts[key]} {word}" for key, word in _OUTCOMES.items() if verdicts[key]) or "nothing left"
