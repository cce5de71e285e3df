"""A journal as Markdown, short enough to be pasted into an issue."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable

from pytest_msprobe.journal.file import Entry, Journal
from pytest_msprobe.reports.failure import failure_text, place_in_words
from pytest_msprobe.reports.labels import label
from pytest_msprobe.reports.text import clipped, code_block, code_span

# GitHub refuses an issue of more than 65 536 characters; these keep the page under half of that, whatever is in it.
_FAILURES_SHOWN = 10
_FAILURE_LENGTH = 2000
_SLOWEST_SHOWN = 5
_NAMES_SHOWN = 5
_NAME_LENGTH = 300

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


def markdown(journal: Journal) -> str:
    """Return the report: what was checked, how it ended, the worst failures, skips by reason, the slowest records."""
    failures = [entry for entry in journal.entries.values() if entry.result.verdict.outcome == "fail"]
    sections = [_head(journal, len(failures)), _failures(journal, failures), _skips(journal), _slowest(journal)]
    return "\n\n".join(section for section in sections if section) + "\n"


def _head(journal: Journal, failed: int) -> str:
    entries, header = journal.entries.values(), journal.header
    outcomes = Counter(entry.outcome for entry in entries)
    counts = ", ".join(f"{outcomes[key]} {word}" for key, word in _IN_WORDS.items() if outcomes[key])
    settings = ", ".join(f"{name} {value}" for name, value in header.settings.items())
    lines = [
        f"## msprobe: {failed} of {len(entries)} records failed",
        "",
        f"* Outcomes: {counts or 'nothing has finished'}",
        f"* Dump: {_names(header.dumps)}",
        f"* Device: {_names(start.description for start in journal.starts)}",
        f"* Math modes: {_names(start.modes_in_words for start in journal.starts)}",
        f"* Settings: {_name(settings)}",
    ]
    return "\n".join(lines)


def _failures(journal: Journal, failures: list[Entry]) -> str:
    if not failures:
        return ""
    worst = heapq.nlargest(_FAILURES_SHOWN, failures, key=lambda entry: entry.result.verdict.margin)
    hidden = len(failures) - len(worst)
    title = f"### Failures, the worst {len(worst)} of {len(failures)}" if hidden else "### Failures, the worst first"
    labels = label({journal.dump_of(entry) for entry in journal.entries.values()})
    return "\n\n".join([title, *(_failure(journal, entry, labels[journal.dump_of(entry)]) for entry in worst)])


def _failure(journal: Journal, entry: Entry, dump: str) -> str:
    rerun = journal.rerun_command(entry)
    text = failure_text(entry.result, rerun, place=place_in_words(entry.device, dump))
    # What a long text loses is its middle: the command stays.
    return code_block(text if len(text) <= _FAILURE_LENGTH else _shortened(text, rerun))


def _shortened(text: str, rerun: str) -> str:
    command = clipped(rerun, _FAILURE_LENGTH // 2)
    return f"{clipped(text, _FAILURE_LENGTH - len(command))}\n\n{command}"


def _skips(journal: Journal) -> str:
    reasons = Counter(entry.result.skip.value for entry in journal.entries.values() if entry.result.skip)
    return _table("### Skipped", "reason", "records", reasons.most_common())


def _slowest(journal: Journal) -> str:
    slowest = heapq.nlargest(_SLOWEST_SHOWN, journal.entries.values(), key=lambda entry: entry.result.seconds)
    return _table("### Slowest", "record", "seconds", [(e.result.record, f"{e.result.seconds:.3g}") for e in slowest])


def _table(title: str, name: str, value: str, rows: Iterable[tuple[str, object]]) -> str:
    lines = [f"| {_name(text)} | {number} |" for text, number in rows]
    return "\n".join([title, "", f"| {name} | {value} |", "| --- | --- |", *lines]) if lines else ""


def _names(texts: Iterable[str]) -> str:
    """Return different texts, the first few of them."""
    different = list(dict.fromkeys(texts))
    hidden = len(different) - _NAMES_SHOWN
    shown = ", ".join(map(_name, different[:_NAMES_SHOWN])) or "not known"
    return f"{shown} and {hidden} more" if hidden > 0 else shown


def _name(text: str) -> str:
    return code_span(clipped(text, _NAME_LENGTH))
