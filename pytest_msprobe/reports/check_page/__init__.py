"""The page of a check: what came of every record, of one run or of several, to search, sort and look into.

Importing its modules loads msgspec and pytest.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_msprobe.devices.registry import on_card
from pytest_msprobe.journal import Entry, Journal
from pytest_msprobe.journal.shards import WholeRun
from pytest_msprobe.reports.check_page.rows import OF_DUMPS, AboutRun, CheckedRecord, Rows, RunFacts
from pytest_msprobe.reports.history import EarlierRuns, ItemHistories, ItemKey, dump_places
from pytest_msprobe.reports.markdown import label
from pytest_msprobe.reports.pages import next_steps, write_page
from pytest_msprobe.results.error_map import BINS, LEVELS, LIMIT_RANK, NOT_FINITE


def write_verdicts_page(
    path: Path, runs: Sequence[RunFacts], rows: Rows, histories: ItemHistories | None = None
) -> None:
    """Write the page, with what earlier runs made of its rows. Raises OSError where the disk refuses."""
    data = {
        "runs": [_run(run) for run in runs],
        **rows.plain(),
        "history": None if histories is None else histories.plain(path),
        "bins": BINS,
        "levels": {"finite": LEVELS, "limit": LIMIT_RANK, "notFinite": NOT_FINITE},
        "commands": next_steps(),
    }
    write_page(path, __package__, data, title="Check", parts=("errormap", "uplot", "plot", "table"))


def _run(run: RunFacts) -> dict[str, Any]:
    starts = dict.fromkeys((start.place, start.description, start.modes_in_words) for start in run.starts)
    return {
        "name": run.name,
        "began": run.began,
        "devices": list(dict.fromkeys(description for _, description, _ in starts)),
        "modes": list(dict.fromkeys(modes for *_, modes in starts)),
        "settings": dict(run.settings),
        "notes": run.about.notes,
        "rerunTitle": run.about.rerun_title,
    }


def write_page_of_journals(
    path: Path,
    runs: Sequence[WholeRun],
    earlier: EarlierRuns | None = None,
    about: Callable[[Journal], AboutRun] = lambda journal: OF_DUMPS,
) -> None:
    """Write the page of what several runs, or one, have finished; ``about`` says what its head has of each.

    Raises OSError where the disk refuses.
    """
    rows, histories = Rows(), None if earlier is None else ItemHistories(earlier)
    for place, run in enumerate(runs):
        labels = label(run.journal.dumps)
        places = dump_places(labels)
        for entry in run.journal.entries.values():
            checked = _checked(place, run.journal, entry, labels, places)
            rows.add(checked)
            if histories is not None:
                histories.add(checked.key, checked.result)
    write_verdicts_page(path, [_facts(run, about) for run in runs], rows, histories)


def _checked(
    run: int, journal: Journal, entry: Entry, labels: Mapping[Path, str], places: Mapping[Path, str]
) -> CheckedRecord:
    if entry.command:
        key, rerun = ItemKey("", entry.result.record), tuple(shlex.split(entry.command))
        return CheckedRecord(run, entry.result, card=entry.device, rerun=rerun, key=key)
    dump, words = journal.dump_of(entry), tuple(on_card(journal.header.rerun, entry.device))
    key, selection = ItemKey(places[dump], entry.result.record), f"{dump}::{entry.result.record}"
    return CheckedRecord(run, entry.result, labels[dump], entry.device, words, selection, key)


def _facts(run: WholeRun, about: Callable[[Journal], AboutRun]) -> RunFacts:
    journal = run.journal
    return RunFacts(run.name, f"{run.began:%Y-%m-%d %H:%M}", journal.starts, journal.header.settings, about(journal))
