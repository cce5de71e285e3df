"""History of a run's items, from the journals of earlier runs, as data of a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from msgspec.structs import replace

from msprobe_hooks.dump.recording_paths import step_rank
from msprobe_hooks.messages import counted
from msprobe_standards.verdict import Verdict
from pytest_msprobe.errors import JournalError
from pytest_msprobe.journal import Journal, read_header, read_journal
from pytest_msprobe.journal.shards import Part, WholeRun, whole_runs
from pytest_msprobe.reports.markdown import label
from pytest_msprobe.reports.pages import page_number, page_of_journal, relative_address
from pytest_msprobe.reports.text import one_line
from pytest_msprobe.reports.worst_margins import AT_MOST, is_worse, only
from pytest_msprobe.results.result import DirectionResult


class ItemKey(NamedTuple):
    """A record and, among the dumps of its run, the place of its own: the same in two runs for the same item.

    The place is empty for a check of a test, whose record has the test's name, and for the only dump of a run.
    """

    place: str
    record: str


NO_KEY: Final = ItemKey("", "")


def dump_places(labels: Mapping[Path, str]) -> dict[Path, str]:
    """Return the place of each dump of a run, given their labels among each other.

    It is the step and rank, which do not depend on which other dumps a run has; where several have the same, or none,
    it is the label.
    """
    numbers = {dump: _step_and_rank(dump) for dump in labels}
    count = Counter(numbers.values())
    return {dump: number if number and count[number] == 1 else labels[dump] for dump, number in numbers.items()}


def _step_and_rank(dump: Path) -> str:
    return "/".join(
        f"{name}{number}" for name, number in zip(("step", "rank"), step_rank(dump), strict=True) if number is not None
    )


#: Of how many runs, and how many results of all together, a page shows the history: the newest.
MOST_RUNS: Final = 20
MOST_RESULTS: Final = 500_000
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class EarlierRuns:
    """Runs by date, and of the other journals of the folder why they are none of these."""

    folder: Path
    runs: Sequence[WholeRun]
    left_out: Sequence[str] = ()

    def __str__(self) -> str:
        """Return the folder and what was found in it, as one line."""
        count = len(self.runs)
        number_of_runs = counted(count, "earlier run") if count else "no earlier runs"
        more = f", and {len(self.left_out) - _MOST_NAMED} more" if len(self.left_out) > _MOST_NAMED else ""
        left = f"; left out: {', '.join(self.left_out[:_MOST_NAMED])}{more}" if self.left_out else ""
        return one_line(f"{number_of_runs} in {self.folder}{left}")


def read_earlier_runs(folder: Path, *, before: datetime, modes: Collection[str], own: Collection[Path]) -> EarlierRuns:
    """Return the runs of the journals of a folder, ``*.jsonl``, that began before a date.

    ``modes`` are the kinds of run that count, ``own`` the journals of the run whose history this is. What cannot be
    read is left out. Raises OSError where the folder cannot be listed.
    """
    own = {path.resolve() for path in own}
    left_out: list[str] = []
    parts: list[Part] = []
    for path in sorted(path for path in folder.iterdir() if path.suffix == ".jsonl"):
        if path.resolve() in own:
            continue
        try:
            part = Part(path, Journal(read_header(path), {}))
        except JournalError as error:
            left_out.append(_unreadable(path, error))
            continue
        mode = part.journal.header.settings.get("mode", "")
        if mode not in modes:
            left_out.append(f"{path.name} (of another kind of run{f', {mode}' if mode else ''})")
        elif part.began < before:
            parts.append(part)
    return EarlierRuns(folder, whole_runs(_newest(parts, left_out)), left_out)


def _newest(journals: Sequence[Part], left_out: list[str]) -> list[Part]:
    """Return the newest of the journals with what they hold; a shard counts as the part of a run that it is."""
    parts: list[Part] = []
    runs, results = 0.0, 0
    for path, journal in sorted(journals, key=lambda part: part.began, reverse=True):
        shards = int(journal.header.shard.partition("/")[2] or 1)
        runs += 1 / shards
        if runs > MOST_RUNS + 1e-9 or results > MOST_RESULTS:
            break
        try:
            read = read_journal(path)
        except JournalError as error:
            left_out.append(_unreadable(path, error))
            continue
        results += len(read.entries)
        entries = {name: replace(entry, result=brief(entry.result)) for name, entry in read.entries.items()}
        parts.append(Part(path, Journal(read.header, entries, read.starts)))
    return parts


def _unreadable(path: Path, error: JournalError) -> str:
    # Of a damaged line the problem begins with the path.
    return f"{path.name} ({error.problem.removeprefix(f'{path}: ')})"


def brief(result: DirectionResult) -> DirectionResult:
    """Return a result without what a history does not show, which is most of it."""
    of = result.verdict
    verdict = Verdict(of.outcome, of.standard, margin=of.margin, at_most=of.at_most)
    return DirectionResult(result.record, verdict, breakdown=result.breakdown)


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
