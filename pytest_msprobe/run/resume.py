"""The files of a resumed run are those of the whole: what a journal had finished is reported to them once more.

The terminal and its counts hear nothing of it; the summary counts it separately.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import pytest
from _pytest.junitxml import xml_key

from pytest_msprobe.journal.journal import Entry, Journal, read_journal
from pytest_msprobe.reports.dump_labels import label
from pytest_msprobe.reports.failure_text import failure_text, place_in_words
from pytest_msprobe.reports.junit_properties import entry_properties
from pytest_msprobe.results.result import to_plain
from pytest_msprobe.run.options import options_key


def report_finished(config: pytest.Config, finished: Collection[str]) -> None:
    """Report the finished items of the journal to ``--junitxml`` and ``--msprobe-csv``, where they were asked for.

    Raises JournalError where the journal is damaged.
    """
    path, junit = config.stash[options_key].journal, config.stash.get(xml_key, None)
    files = [*_tables(config), *([junit] if junit else [])]
    if path is None or not finished or not files:
        return
    journal = read_journal(path)
    labels = label(journal.dumps)
    for entry in journal.entries.values():
        if entry.id in finished:
            for report in _reports(journal, entry, labels[journal.dump_of(entry)]):
                for file in files:
                    file.pytest_runtest_logreport(report)


def _tables(config: pytest.Config) -> list[Any]:
    """Return the reporters that ask for what was finished: see `Mode.reporters`."""
    return [plugin for plugin in config.pluginmanager.get_plugins() if getattr(plugin, "hears_finished", False)]


def _reports(journal: Journal, entry: Entry, dump: str) -> Iterator[pytest.TestReport]:
    """Yield the reports that pytest would have made of an item: one of its call, and the one that ends it."""
    result, verdict = entry.result, entry.result.verdict
    place = entry.id.partition("::")[0]
    common = {
        "nodeid": entry.id,
        "location": (place, None, result.record),
        "keywords": {},
        "user_properties": entry_properties(journal, entry),
    }
    longrepr: str | tuple[str, int, str] | None = None
    if verdict.outcome == "fail":
        longrepr = failure_text(result, journal.rerun_command(entry), place=place_in_words(entry.device, dump))
    elif verdict.outcome == "skip":
        longrepr = (place, 0, f"Skipped: {verdict.reason}")
    ended = {"fail": "failed", "skip": "skipped"}.get(verdict.outcome, "passed")
    called = {"when": "call", "outcome": ended, "longrepr": longrepr, "duration": result.seconds}
    yield pytest.TestReport(**common, **called, msprobe=to_plain(result))  # type: ignore[arg-type]
    yield pytest.TestReport(**common, when="teardown", outcome="passed", longrepr=None)  # type: ignore[arg-type]
