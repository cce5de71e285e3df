"""``--failed``: the records of a dump that failed, as a journal tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from pytest_msprobe.errors import JournalError
from pytest_msprobe.journal.file import read_journal
from pytest_msprobe.modes.check.explore.smallest import SmallestInput, told_smallest
from pytest_msprobe.storage.digests import fingerprint


@dataclass(frozen=True, slots=True)
class Failures:
    """What failed in a run, and the settings under which it did, as the journal's header names them.

    ``smallest`` are the inputs to which exploring shrunk failures, by record.
    """

    records: frozenset[str]
    settings: Mapping[str, str]
    smallest: Mapping[str, SmallestInput] = field(default_factory=dict)


def read_failures(journal: Path, dump: Path) -> Failures:
    """Return what failed of a dump. Raises JournalError where the journal is unusable or is about other dumps."""
    read = read_journal(journal)
    mode = read.header.settings.get("mode", "nothing")
    if mode != "check":
        raise JournalError(f"is about {mode}", file=journal, remedy="give a journal of pytest --msprobe-dump")
    digest = fingerprint(dump)
    same = [path for path, found in read.header.dumps.items() if found == digest]
    if not same:
        others = ", ".join(sorted(read.header.dumps))
        raise JournalError(
            f"is not about {dump}, or the dump has changed since", file=journal, remedy=f"it is about {others}"
        )
    failed = {
        entry.result.record: entry.result
        for entry in read.entries.values()
        if entry.result.verdict.outcome == "fail"
        and not entry.command
        and _dump_of(entry.id.partition("::")[0], read.header.dumps) in same
    }
    found = {record: told_smallest(result.extras) for record, result in failed.items()}
    smallest = {record: given for record, given in found.items() if given is not None}
    return Failures(frozenset(failed), read.header.settings, smallest)


def _dump_of(file: str, dumps: Iterable[str]) -> str | None:
    """Return which dump an item's file is: ids are relative to a folder that the journal does not name."""
    parts = PurePosixPath(file).parts
    found = [dump for dump in dumps if PurePosixPath(dump).parts[-len(parts) :] == parts]
    return min(found, key=len, default=None)
