"""Histories of a page's records in earlier runs, as data of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pytest_msprobe.journal.shards import WholeRun
from pytest_msprobe.reports.history.earlier_runs import EarlierRuns
from pytest_msprobe.reports.history.item_key import ItemKey, dump_places
from pytest_msprobe.reports.markdown import label
from pytest_msprobe.reports.pages.write_page import page_number, page_of_journal, relative_address
from pytest_msprobe.reports.worst_margins import AT_MOST, is_worse, only
from pytest_msprobe.results.result import DirectionResult

#: What became of a record since the run before that judged it; ``broken`` passed then, ``mended`` failed.
Change = Literal["broken", "mended", "worse", "better", "new", ""]

_IN_WORDS: Final[Mapping[str, str]] = {
    "pass": "passed",
    "warn": "warned",
    "fail": "failed",
    "skip": "skipped",
    "crash": "crashed",
    "timeout": "timed out",
    "oom": "out of memory",
    "error": "raised",
}


@dataclass(frozen=True, slots=True)
class Before:
    """Earlier state of a record: in few words, and what that makes of what it is."""

    words: str
    change: Change


class ItemHistories:
    """Takes the records of a page in the order of its rows; `plain` is what the page's scripts read."""

    def __init__(self, earlier: EarlierRuns) -> None:
        self._earlier = earlier
        self._results = [_by_key(run) for run in earlier.runs]
        self._rows: list[tuple[ItemKey, Before]] = []

    def add(self, key: ItemKey, result: DirectionResult) -> None:
        """Add the record of the next row."""
        past = [earlier for run in reversed(self._results) if (earlier := run.get(key)) is not None]
        self._rows.append((key, before(result, past)))

    def plain(self, page: Path) -> dict[str, Any]:
        """Return all of it for a page in this file: the runs by date, and their results by row."""
        words, outcomes, changes = _Words(), _Words(), _Words()
        return {
            "note": str(self._earlier),
            "runs": [_run(run, page) for run in self._earlier.runs],
            "results": [self._column(run, outcomes) for run in self._results],
            "before": [words.place(earlier.words) for _, earlier in self._rows],
            "changes": [changes.place(earlier.change) for _, earlier in self._rows],
            "words": {"before": list(words), "outcome": list(outcomes), "change": list(changes)},
        }

    def _column(self, run: Mapping[ItemKey, DirectionResult], outcomes: _Words) -> dict[str, Any]:
        """Return the results of a run by row: places of outcomes, -1 where it has none, and margins."""
        results = [run.get(key) for key, _ in self._rows]
        return {
            "outcomes": [-1 if result is None else outcomes.place(result.outcome) for result in results],
            "margins": [None if result is None else _margin(result) for result in results],
            "atMost": [row for row, result in enumerate(results) if result is not None and result.verdict.at_most],
        }


class _Words(dict[str, int]):
    """Words that are written once, and named by their places."""

    def place(self, word: str) -> int:
        """Return the place of a word."""
        return self.setdefault(word, len(self))


def before(result: DirectionResult, past: Sequence[DirectionResult]) -> Before:
    """Return what a record was in the runs before that have it, the last of them first."""
    if not past:
        return Before("new", "new")
    last = past[0]
    change = _change(result, last)
    if change in ("worse", "better"):
        return Before(f"was {AT_MOST if last.verdict.at_most else ''}{last.verdict.margin:.3g}", change)
    times = next((place for place, earlier in enumerate(past) if earlier.outcome != last.outcome), len(past))
    return Before(f"{_IN_WORDS.get(last.outcome, last.outcome)} {times}x", change)


def _change(result: DirectionResult, last: DirectionResult) -> Change:
    outcomes = result.verdict.outcome, last.verdict.outcome
    if "skip" in outcomes:
        return ""
    is_wrong, was_wrong = (outcome == "fail" for outcome in outcomes)
    if is_wrong != was_wrong:
        return "broken" if is_wrong else "mended"
    if result.outcome != last.outcome:
        return ""
    now, then = only(result), only(last)
    return "worse" if is_worse(now, then) else "better" if is_worse(then, now) else ""


def _by_key(run: WholeRun) -> dict[ItemKey, DirectionResult]:
    journal = run.journal
    places = dump_places(label(journal.dumps))
    return {
        ItemKey("" if entry.command else places[journal.dump_of(entry)], entry.result.record): entry.result
        for entry in journal.entries.values()
    }


def _run(run: WholeRun, page: Path) -> dict[str, Any]:
    journal_page = page_of_journal(run.paths[0]) if len(run.paths) == 1 else None
    return {
        "name": run.name,
        "began": f"{run.began:%Y-%m-%d %H:%M}",
        "devices": list(dict.fromkeys(start.description for start in run.journal.starts)),
        "page": "" if journal_page is None else relative_address(page, journal_page),
    }


def _margin(result: DirectionResult) -> Any:
    return page_number(float(f"{result.verdict.margin:.3g}"))
