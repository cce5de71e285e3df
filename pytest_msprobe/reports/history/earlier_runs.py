"""The journals of a folder that are of earlier runs of the same kind."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from msprobe_hooks.messages import counted
from msprobe_standards.verdict import Verdict
from pytest_msprobe.errors import JournalError
from pytest_msprobe.journal.journal import Entry, Journal, read_header, read_journal
from pytest_msprobe.journal.shards import Part, WholeRun, whole_runs
from pytest_msprobe.reports.text import one_line
from pytest_msprobe.results.result import DirectionResult

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
        entries = {name: _brief(entry) for name, entry in read.entries.items()}
        parts.append(Part(path, Journal(read.header, entries, read.starts)))
    return parts


def _unreadable(path: Path, error: JournalError) -> str:
    # Of a damaged line the problem begins with the path.
    return f"{path.name} ({error.problem.removeprefix(f'{path}: ')})"


def _brief(entry: Entry) -> Entry:
    return Entry(entry.id, entry.outcome, brief(entry.result), entry.device, entry.command)


def brief(result: DirectionResult) -> DirectionResult:
    """Return a result without what a history does not show, which is most of it."""
    of = result.verdict
    verdict = Verdict(of.outcome, of.standard, margin=of.margin, at_most=of.at_most)
    return DirectionResult(result.record, verdict, breakdown=result.breakdown)
