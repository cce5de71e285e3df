"""The journal: one JSON line per settled item, written when it settles, read again to resume or to report.

The first line is a header that says what was checked and how. A line is written with one system call and a run holds
the lock of the file, so a journal has whole lines but for a last one that a dying process cut short; it is dropped.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
from pathlib import Path
from typing import IO, Any

import msgspec

from pytest_msprobe.results import DirectionResult

VERSION = 1


class JournalError(Exception):
    """A journal cannot be used; the text names the file, the problem and the remedy."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What a journal is about: ``dumps`` maps a dump's path to its fingerprint, ``settings`` says how it was judged."""

    msprobe_journal: int = VERSION
    dumps: dict[str, str]
    settings: dict[str, str]


class Entry(msgspec.Struct, frozen=True):
    """One settled item: its id, its outcome (a verdict's, or ``crash``, ``timeout``, ``oom``) and what came of it."""

    id: str
    outcome: str
    result: DirectionResult


class Journal(msgspec.Struct, frozen=True):
    """A journal that was read: the latest entry of each item, in the order in which they first settled."""

    header: Header
    entries: dict[str, Entry]


#: What may come of an item: a verdict's outcomes, and the ways in which an item can fail to reach one.
OUTCOMES = ("pass", "warn", "fail", "skip", "crash", "timeout", "oom")


def outcome_of(result: DirectionResult) -> str:
    """Return how an item ended: its verdict's outcome, or ``crash``, ``timeout`` or ``oom`` in place of ``fail``."""
    verdict = result.verdict
    return verdict.standard if verdict.outcome == "fail" and verdict.standard in OUTCOMES else verdict.outcome


def fingerprint(path: Path) -> str:
    """Return a short digest of a file's content."""
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


def read_journal(path: Path, size: int | None = None) -> Journal:
    """Read a journal, or its first ``size`` bytes.

    Raises JournalError where the file is missing, is no journal, or is one of a newer version.
    """
    try:
        with path.open("rb") as file:
            lines = file.read(-1 if size is None else size).split(b"\n")[:-1]
    except OSError as error:
        raise JournalError(f"{path}: cannot be read: {error.strerror}") from None
    header = _decode_header(path, lines[0] if lines else b"")
    entries: dict[str, Entry] = {}
    for number, line in enumerate(lines[1:], start=2):
        entry = _decode_entry(path, number, line)
        entries[entry.id] = entry
    return Journal(header, entries)


def _decode_header(path: Path, line: bytes) -> Header:
    try:
        version = msgspec.json.decode(line, type=dict).get("msprobe_journal")
    except msgspec.MsgspecError:
        version = None
    if not isinstance(version, int):
        raise JournalError(f"{path}: not a journal; give a file that --msprobe-journal wrote")
    if version > VERSION:
        raise JournalError(f"{path}: written by a newer version (format {version}); update pytest-msprobe to read it")
    try:
        return msgspec.json.decode(line, type=Header)
    except msgspec.ValidationError as error:
        raise JournalError(f"{path}: line 1 is no header of format {version}: {error}") from None


def _decode_entry(path: Path, number: int, line: bytes) -> Entry:
    try:
        # Lax, because JSON has no infinity: those numbers are strings.
        return msgspec.convert(msgspec.json.decode(line), Entry, strict=False)
    except msgspec.MsgspecError as error:
        raise JournalError(
            f"{path}: line {number} is damaged ({error}); delete that line to go on without it"
        ) from None


def _encode(entry: Entry) -> bytes:
    return msgspec.json.encode(without_infinities(msgspec.to_builtins(entry))) + b"\n"


def without_infinities(tree: Any) -> Any:
    """Return nested plain data with NaN and infinities as strings: JSON has no such numbers."""
    if isinstance(tree, dict):
        return {key: without_infinities(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [without_infinities(value) for value in tree]
    return str(tree) if isinstance(tree, float) and not math.isfinite(tree) else tree


class JournalWriter:
    """Appends to one journal, alone.

    Raises JournalError where the file is in use, is no journal, or is about something else than ``header`` says.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b", buffering=0)
        try:
            _lock(self._file, path)
            self._begin(header)
        except JournalError:
            self.close()
            raise

    def _begin(self, header: Header) -> None:
        if self.path.stat().st_size == 0:
            self._append(msgspec.json.encode(header) + b"\n")
        else:
            require_same(self.path, read_journal(self.path).header, header)
            _drop_cut_line(self._file)

    def write(self, entry: Entry) -> None:
        """Append one entry. Raises JournalError where the disk does not take it."""
        self._append(_encode(entry))

    def close(self) -> None:
        """Close the file and give up its lock."""
        self._file.close()

    def _append(self, line: bytes) -> None:
        try:
            complete = self._file.write(line) == len(line)
        except OSError as error:
            raise JournalError(f"{self.path}: cannot be written: {error.strerror}") from None
        if not complete:
            raise JournalError(f"{self.path}: the disk is full")


def require_same(path: Path, found: Header, wanted: Header) -> None:
    """Raise JournalError, naming what differs, where a journal is about another check than the wanted one."""
    for name in {**found.settings, **wanted.settings}:
        before, now = found.settings.get(name, "nothing"), wanted.settings.get(name, "nothing")
        if before != now:
            raise JournalError(f"{path}: was made with {name} {before}, this run has {now}; use another journal")
    if sorted(found.dumps.values()) != sorted(wanted.dumps.values()):
        raise JournalError(f"{path}: was made from other dumps, or they have changed since; use another journal")


def _lock(file: IO[bytes], path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise JournalError(f"{path}: another run is writing this journal; give each run its own") from None


def _drop_cut_line(file: IO[bytes]) -> None:
    file.seek(0)
    whole = file.read().rfind(b"\n") + 1
    file.truncate(whole)
