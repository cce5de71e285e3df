"""``--failed``: the records of a dump that failed, as a journal tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pytest_msprobe.errors import JournalError
from pytest_msprobe.journal.file import read_journal
from pytest_msprobe.storage.digests import fingerprint


@dataclass(frozen=True, slots=True)
class Failures:
    """What failed in a run, and the settings under which it did, as the journal's header names them."""

    records: frozenset[str]
    settings: Mapping[str, str]


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
    failed = (entry.id.partition("::") for entry in read.entries.values() if entry.result.verdict.outcome == "fail")
    records = frozenset(record for file, _, record in failed if _dump_of(file, read.header.dumps) in same)
    return Failures(records, read.header.settings)


def _dump_of(file: str, dumps: Iterable[str]) -> str | None:
    """Return which dump an item's file is: ids are relative to a folder that the journal does not name."""
    parts = PurePosixPath(file).parts
    found = [dump for dump in dumps if PurePosixPath(dump).parts[-len(parts) :] == parts]
    return min(found, key=len, default=None)
