"""The page of journals: each of several runs, as of ranks, seeds, cards or dates."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_msprobe.devices.registry import on_card
from pytest_msprobe.journal.file import Entry, Journal
from pytest_msprobe.journal.runs import WholeRun
from pytest_msprobe.reports.labels import label
from pytest_msprobe.reports.verdicts.html import write_verdicts_page
from pytest_msprobe.reports.verdicts.model import CheckedRecord, RunFacts
from pytest_msprobe.reports.verdicts.rows import Rows


def write_page_of_journals(path: Path, runs: Sequence[WholeRun]) -> None:
    """Write the page of what several runs, or one, have finished. Raises OSError where the disk refuses."""
    rows = Rows()
    for place, run in enumerate(runs):
        labels = label(run.journal.dumps)
        for entry in run.journal.entries.values():
            rows.add(_checked(place, run.journal, entry, labels))
    write_verdicts_page(path, [_facts(run) for run in runs], rows)


def _checked(run: int, journal: Journal, entry: Entry, labels: Mapping[Path, str]) -> CheckedRecord:
    if entry.command:
        return CheckedRecord(run, entry.result, card=entry.device, rerun=tuple(shlex.split(entry.command)))
    dump, words = journal.dump_of(entry), tuple(on_card(journal.header.rerun, entry.device))
    return CheckedRecord(run, entry.result, labels[dump], entry.device, words, f"{dump}::{entry.result.record}")


def _facts(run: WholeRun) -> RunFacts:
    return RunFacts(run.name, f"{run.began:%Y-%m-%d %H:%M}", run.journal.starts, run.journal.header.settings)
