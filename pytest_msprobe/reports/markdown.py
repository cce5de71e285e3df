"""Journals as Markdown, short enough to be pasted into an issue, and short labels of dumps."""

from __future__ import annotations

import heapq
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pytest

from msprobe_hooks.dump.recording_paths import (
    folder_of_run,
    home_of,
    is_converted_file,
    is_iteration_file,
    net_folder,
    tree_of,
)
from pytest_msprobe.journal import Entry
from pytest_msprobe.journal.shards import WholeRun
from pytest_msprobe.reports.github import failure_text, place_in_words
from pytest_msprobe.reports.text import clipped, code_block, code_span
from pytest_msprobe.reports.worst_margins import side_by_side, worst_by_api

#: The labels of this run's dumps.
labels_key = pytest.StashKey[dict[Path, str]]()


def label(dumps: Collection[Path]) -> dict[Path, str]:
    """Return a label for each dump, made of what its path alone has; the only one of a run has an empty label."""
    if len(dumps) < 2:
        return dict.fromkeys(dumps, "")
    shared = folder_of_run(Path(os.path.commonpath([_folder(path) for path in dumps])))
    within = {path: home_of(path).relative_to(shared) for path in dumps}
    one_a_folder = {path.name for path in dumps} == {"dump.json"} and Path("dump.json") not in within.values()
    return {path: str(name.parent if one_a_folder else name) for path, name in within.items()}


def _folder(dump: Path) -> Path:
    """Return the folder that a dump is in: of an iteration of a static graph, that of the process."""
    if is_converted_file(dump):
        return tree_of(dump).parent
    return net_folder(dump).parent if is_iteration_file(dump) else dump.parent


def labelled(record: str, dump: Path, labels: dict[Path, str]) -> str:
    """Return a record's name with its dump's label, or the name of the file where a label is empty."""
    return f"{record} ({labels[dump] or _short_name(dump)})"


@lru_cache(maxsize=64)
def _short_name(dump: Path) -> str:
    # Asked for each item.
    return str(home_of(dump).relative_to(_folder(dump)))


# GitHub refuses an issue of more than 65 536 characters; these keep the page under half of that, whatever is in it.
_FAILURES_SHOWN = 10
_FAILURE_LENGTH = 2000
_SLOWEST_SHOWN = 5
_NAMES_SHOWN = 5
_NAME_LENGTH = 300
_APIS_SHOWN = 30
_CELL_LENGTH = 60

_IN_WORDS = {
    "pass": "passed",
    "warn": "warned",
    "fail": "failed",
    "crash": "crashed",
    "timeout": "timed out",
    "oom": "ran out of memory",
    "error": "ended in an error",
    "skip": "skipped",
}


class _Finished(NamedTuple):
    """A finished item, and the run that it is of."""

    run: WholeRun
    entry: Entry


def markdown(runs: Sequence[WholeRun]) -> str:
    """Return the report: what was checked, how it ended, the worst failures, skips by reason, the slowest records.

    Several runs are columns of one table, and what is not alike in them of another.
    """
    finished = [_Finished(run, entry) for run in runs for entry in run.journal.entries.values()]
    failures = [record for record in finished if record.entry.result.verdict.outcome == "fail"]
    of_runs = f", in {len(runs)} runs" if len(runs) > 1 else ""
    sections = [
        f"## msprobe: {len(failures)} of {len(finished)} records failed{of_runs}",
        *_shard_notes(runs),
        *([_facts(runs[0])] if len(runs) == 1 else [_columns(runs), _unlike(runs)]),
        _failures(failures, are_named=len(runs) > 1),
        _skips(finished),
        _slowest(finished),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _shard_notes(runs: Sequence[WholeRun]) -> Iterator[str]:
    """Yield what is not as it should be with the shards of runs."""
    for run in runs:
        if run.missing:
            yield f"**{_counted(len(run.missing), 'shard')} missing** of {_name(run.name)}: {_names(run.missing)}"
        for shard, paths in run.doubled.items():
            yield f"Shard {_name(shard)} occurs {len(paths)} times, the latest counts: {_names(map(str, paths))}"


def _counted(number: int, what: str) -> str:
    return f"1 {what} is" if number == 1 else f"{number} {what}s are"


def _facts(run: WholeRun) -> str:
    header, starts = run.journal.header, run.journal.starts
    counts = ", ".join(f"{count} {word}" for word, count in _outcomes(run).items())
    settings = ", ".join(f"{name} {value}" for name, value in header.settings.items())
    lines = [
        f"* Outcomes: {counts or 'nothing has finished'}",
        f"* Dump: {_names(map(_home, header.dumps))}",
        f"* Device: {_names(start.description for start in starts)}",
        f"* Math modes: {_names(start.modes_in_words for start in starts)}",
        f"* Settings: {_name(settings)}",
    ]
    if run.journal.left_out:
        reasons = (f"{count} {reason}" for reason, count in run.journal.left_out.items())
        lines.append(f"* Left out: {_names(reasons)}")
    return "\n".join(lines)


def _columns(runs: Sequence[WholeRun]) -> str:
    """Return a table with a column for each run: what it was of, what of it the others were not, how it ended."""
    journals = [run.journal for run in runs]
    facts = {
        "journal": [_name(run.name) for run in runs],
        "began": [f"{run.began:%Y-%m-%d %H:%M}" for run in runs],
        "dump": [_names(map(_home, journal.header.dumps)) for journal in journals],
        "device": [_names(start.description for start in journal.starts) for journal in journals],
        "math modes": [_names(start.modes_in_words for start in journal.starts) for journal in journals],
    }
    for name in dict.fromkeys(name for journal in journals for name in journal.header.settings):
        facts[_name(name)] = [_name(journal.header.settings.get(name, "(default)")) for journal in journals]
    shown = {name: cells for name, cells in facts.items() if name == "journal" or len(set(cells)) > 1}
    outcomes = [_outcomes(run) for run in runs]
    for word in _IN_WORDS.values():
        if any(word in counts for counts in outcomes):
            shown[word] = [str(counts.get(word, 0)) for counts in outcomes]
    return _table(["", *_numbered(runs)], ([name, *cells] for name, cells in shown.items()))


def _unlike(runs: Sequence[WholeRun]) -> str:
    """Return a table of the APIs that did not come to the same in all runs."""
    rows = side_by_side([worst_by_api(entry.result for entry in run.journal.entries.values()) for run in runs])
    unlike = [row for row in rows if not row.is_alike]
    shown = [
        [code_span(clipped(row.name, _CELL_LENGTH)), *("-" if one is None else str(one) for one in row.worst)]
        for row in unlike[:_APIS_SHOWN]
    ]
    alike, hidden = len(rows) - len(unlike), len(unlike) - len(shown)
    rest = [f"and {hidden} more"] if hidden else []
    rest += [f"{alike} API{'s are' if alike > 1 else ' is'} the same in all runs"] if alike else []
    table = _table(["error / allowed", *_numbered(runs)], shown)
    parts = ["### APIs that differ" if shown else "", table, "; ".join(rest)]
    return "\n\n".join(part for part in parts if part)


def _numbered(runs: Sequence[WholeRun]) -> list[str]:
    return [str(number) for number in range(1, len(runs) + 1)]


def _outcomes(run: WholeRun) -> dict[str, int]:
    outcomes = Counter(entry.outcome for entry in run.journal.entries.values())
    return {word: outcomes[key] for key, word in _IN_WORDS.items() if outcomes[key]}


def _failures(failures: Sequence[_Finished], *, are_named: bool) -> str:
    if not failures:
        return ""
    worst = heapq.nlargest(_FAILURES_SHOWN, failures, key=lambda failure: failure.entry.result.verdict.margin)
    hidden = len(failures) - len(worst)
    title = f"### Failures, the worst {len(worst)} of {len(failures)}" if hidden else "### Failures, the worst first"
    sections = [title]
    for failure in worst:
        sections += [f"In {_name(failure.run.name)}:"] if are_named else []
        sections.append(_failure(failure))
    return "\n\n".join(sections)


def _failure(failure: _Finished) -> str:
    journal, entry = failure.run.journal, failure.entry
    rerun = journal.rerun_command(entry)
    dump = "" if entry.command else label(journal.dumps)[journal.dump_of(entry)]
    text = failure_text(entry.result, rerun, place=place_in_words(entry.device, dump))
    # What a long text loses is its middle: the command stays.
    return code_block(text if len(text) <= _FAILURE_LENGTH else _shortened(text, rerun))


def _shortened(text: str, rerun: str) -> str:
    command = clipped(rerun, _FAILURE_LENGTH // 2)
    return f"{clipped(text, _FAILURE_LENGTH - len(command))}\n\n{command}"


def _skips(finished: Sequence[_Finished]) -> str:
    reasons = Counter(record.entry.result.skip for record in finished if record.entry.result.skip)
    rows = [[_name(reason), str(count)] for reason, count in reasons.most_common()]
    return f"### Skipped\n\n{_table(['reason', 'records'], rows)}" if rows else ""


def _slowest(finished: Sequence[_Finished]) -> str:
    results = [record.entry.result for record in finished]
    slowest = heapq.nlargest(_SLOWEST_SHOWN, results, key=lambda result: result.seconds)
    rows = [[_name(result.record), f"{result.seconds:.3g}"] for result in slowest]
    return f"### Slowest\n\n{_table(['record', 'seconds'], rows)}" if rows else ""


def _table(title: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join([f"| {' | '.join(title)} |", "| --- " * len(title) + "|", *lines]) if lines else ""


def _home(dump: str) -> str:
    return str(home_of(Path(dump)))


def _names(texts: Iterable[str]) -> str:
    """Return different texts, the first few of them."""
    different = list(dict.fromkeys(texts))
    hidden = len(different) - _NAMES_SHOWN
    shown = ", ".join(map(_name, different[:_NAMES_SHOWN])) or "not known"
    return f"{shown} and {hidden} more" if hidden > 0 else shown


def _name(text: str) -> str:
    return code_span(clipped(text, _NAME_LENGTH))
