"""The journal: one JSON line per settled item, written when it settles, read again to resume or to report.

The first line is a header that says what was checked and how. A line is written with one system call and a run holds the
file's lock, so a journal has whole lines but for a last one that a dying process cut short; that one is dropped.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from pytest_msprobe.results import DirectionResult

VERSION = 1


class JournalError(Exception):
    """A journal cannot be used; the text names the file, the problem and the remedy."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What a journal is about. ``dumps`` maps a dump's path to its fingerprint."""

    msprobe_journal: int = VERSION
    dumps: dict[str, str]
    policy: str
    level: str | None
    device: str
    seed: int
    real_data: str


class Entry(msgspec.Struct, frozen=True):
    """One settled item: its id, its outcome (a verdict's, or ``crash``, ``timeout``, ``oom``) and what came of it."""

    id: str
    outcome: str
    result: DirectionResult


class Journal(msgspec.Struct, frozen=True):
    """A journal that was read: the latest entry of each item, in the order in which they first settled."""

    header: Header
    entries: dict[str, Entry]


def fingerprint(path: Path) -> str:
    """Return a short digest of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


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
        return _decoder.decode(line)
    except msgspec.MsgspecError as error:
        raise JournalError(f"{path}: line {number} is damaged ({error}); delete that line to go on without it") from None


_decoder = msgspec.json.Decoder(Entry, float_hook=float)
_encoder = msgspec.json.Encoder()


class JournalWriter:
    """Appends to one journal, alone. Raises JournalError where the file is in use, foreign or of other content."""

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: BinaryIO = path.open("ab", buffering=0)
        _lock(self._file, path)
        if self._file.tell() == 0:
            self._file.write(_encoder.encode(header) + b"\n")
        else:
            _require_same(path, read_journal(path).header, header)
            _drop_cut_line(path)

    def write(self, entry: Entry) -> None:
        """Append one entry. Raises JournalError where the disk is full."""
        line = _encoder.encode(_finite(entry)) + b"\n"
        try:
            written = self._file.write(line)
        except OSError as error:
            raise JournalError(f"{self.path}: cannot be written: {error.strerror}") from None
        if written != len(line):
            raise JournalError(f"{self.path}: the disk is full")

    def close(self) -> None:
        """Close the file and give up its lock."""
        self._file.close()
