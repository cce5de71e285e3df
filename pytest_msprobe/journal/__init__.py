"""The journal of a run.

Importing its modules loads msgspec.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec

from msprobe_hooks.dump.recording_paths import dump_at, home_of
from msprobe_hooks.json_decoding import JsonError, decode_json
from msprobe_hooks.regular_files import open_regular, require_regular
from pytest_msprobe.devices.registry import on_card
from pytest_msprobe.errors import JournalError
from pytest_msprobe.results.result import DirectionResult, Start, as_json

# What a write ends with where nothing more fits: on the disk, within a quota, within the limit on the size of a file.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class AppendedLines:
    """Appends to a file, alone. Raises JournalError where it cannot be written or is in use.

    With ``refuses_links`` a link in its place is such a file: others may write into its folder.
    """

    def __init__(self, path: Path, *, refuses_links: bool = False) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                require_regular(path)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (os.O_NOFOLLOW if refuses_links else 0)
            self._file: IO[bytes] = os.fdopen(os.open(path, flags, 0o666), "a+b", buffering=0)
        except OSError as error:
            raise JournalError(f"cannot be written: {error.strerror}", file=path) from None
        try:
            _lock(self._file, path)
        except JournalError:
            self.close()
            raise

    @property
    def is_empty(self) -> bool:
        """Return whether nothing has been written yet."""
        return self.path.stat().st_size == 0

    def drop_cut_line(self) -> None:
        """Remove what a process that died left of its last line."""
        self._file.seek(0)
        whole = self._file.read().rfind(b"\n") + 1
        self._file.truncate(whole)

    def append(self, line: bytes) -> None:
        """Append one line, with its end. Raises JournalError where the disk does not take it."""
        try:
            complete = self._file.write(line) == len(line)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise JournalError(f"cannot be written: {error.strerror}", file=self.path) from None
            complete = False
        if not complete:
            raise JournalError("the disk is full", file=self.path)

    def close(self) -> None:
        """Close the file and give up its lock."""
        self._file.close()


def _lock(file: IO[bytes], path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        remedy = "use one journal per run and rank"
        raise JournalError("another run is writing this journal", file=path, remedy=remedy) from None


VERSION = 2

#: The setting of a shard that has dumps of its own: what all shards together are about.
DIVIDED_DUMPS = "divided dumps"


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """Header of a journal: the run that it belongs to.

    ``dumps`` maps a dump's path to its fingerprint, ``settings`` says how it was judged, ``shard`` which part of a run
    this is, as ``3/8``; a run that resumes must have the same. ``root`` is the folder that the ids' paths start from,
    ``rerun`` the words of the command that runs one item again, with ``<dump>`` and ``<record>`` in place of the
    item's. ``began`` is when, as ISO 8601 with time zone.
    """

    msprobe_journal: int = VERSION
    dumps: dict[str, str]
    settings: dict[str, str]
    shard: Annotated[str, msgspec.Meta(pattern=r"^([1-9]\d{0,5}/[1-9]\d{0,5})?$")] = ""
    root: str = ""
    rerun: tuple[str, ...] = ()
    began: str = ""


class Entry(msgspec.Struct, frozen=True, tag_field="line", tag="item"):
    """One finished item: its id, its outcome (a verdict's, or ``crash``, ``timeout``, ``oom``) and what came of it.

    A check that a test of the user's own made has the ``command`` that runs the test again, and in its result's record
    the same name as in ``id``; items of dumps have none, since the header has theirs.
    """

    id: str
    outcome: str
    result: DirectionResult
    device: str = ""
    command: str = ""


class MoreDumps(msgspec.Struct, frozen=True, tag_field="line", tag="dumps"):
    """Dumps that the items after this line are about, in addition to those of the header, as the header has them."""

    dumps: dict[str, str]


class LeftOut(msgspec.Struct, frozen=True, tag_field="line", tag="left_out"):
    """Counts of what a run did not look at, by reason: the last line of one that comes to its end."""

    counts: dict[str, int]


class Journal(msgspec.Struct, frozen=True):
    """A journal that was read: the latest entry of each item, in the order in which they first finished.

    The file has one JSON object a line. A line that was cut off at the end is dropped when writing goes on::

        {"msprobe_journal": 2, "dumps": {"/runs/a/dump.json": "5f3a..."}, "settings": {...}, ...}       Header
        {"line": "start", ...}                              Start: the device and its modes, once for each process
        {"line": "item", "id": "a/dump.json::Torch.add.0.forward", "outcome": "pass", "result": {...}}   Entry
        {"line": "item", "id": "a/dump.json::Torch.mul.0.forward", "outcome": "fail", "result": {...}}
        {"line": "item", "id": "a/dump.json::Torch.mul.0.forward", ...}       it ran again: this one counts

    Its header has all dumps that the journal is about. ``left_out`` counts by reason what the run did not
    look at; None where it did not come to its end, and for a run that looks at all.
    """

    header: Header
    entries: dict[str, Entry]
    starts: list[Start] = []
    left_out: dict[str, int] | None = None

    def dump_of(self, entry: Entry) -> Path:
        """Return the path of the dump that an entry's item is about."""
        return _dump_at(self.header.root, entry.id.partition("::")[0], tuple(self.header.dumps))

    @property
    def dumps(self) -> set[Path]:
        """The paths of the dumps that there are finished items of."""
        return {self.dump_of(entry) for entry in self.entries.values() if not entry.command}

    def rerun_command(self, entry: Entry) -> str:
        """Return the command that runs an entry's item again."""
        if entry.command:
            return entry.command
        record_id = f"{home_of(self.dump_of(entry))}::{entry.result.record}"
        words = on_card(self.header.rerun, entry.device)
        return shlex.join(word.replace("<dump>::<record>", record_id) for word in words)


# Reports ask it of each item, several times.
@lru_cache(1024)
def _dump_at(root: str, place: str, dumps: tuple[str, ...]) -> Path:
    path = Path("/", root, place)
    return path if str(path) in dumps else dump_at(path, [*map(Path, dumps)])


class _Finished(msgspec.Struct, tag_field="line", tag="item"):
    """Part of an entry that resuming needs; the rest of the line is checked for JSON syntax, not decoded."""

    id: str
    outcome: str
    command: str = ""


def read_journal(path: Path) -> Journal:
    """Read a journal.

    Raises JournalError where the file is missing, damaged, no journal, or one of another version.
    """
    header, lines = _lines(path)
    entries: dict[str, Entry] = {}
    starts = []
    dumps = dict(header.dumps)
    left_out: dict[str, int] | None = None
    for line in _decoded(path, lines, Entry | Start | MoreDumps | LeftOut):
        if isinstance(line, Start):
            starts.append(line)
        elif isinstance(line, MoreDumps):
            dumps |= line.dumps
        elif isinstance(line, LeftOut):
            left_out = line.counts
        else:
            entries[line.id] = line
    return Journal(msgspec.structs.replace(header, dumps=dumps), entries, starts, left_out)


def read_outcomes(path: Path, size: int | None = None) -> tuple[dict[str, str], list[Start]]:
    """Read the latest outcome of each item of a dump and the starts, from the journal or its first ``size`` bytes.

    Checks of tests are left out: they do not say what else became of a test.

    Raises JournalError as ``read_journal`` does.
    """
    outcomes: dict[str, str] = {}
    starts = []
    for line in _decoded(path, _lines(path, size)[1], _Finished | Start | MoreDumps | LeftOut):
        if isinstance(line, Start):
            starts.append(line)
        elif isinstance(line, _Finished) and not line.command:
            outcomes[line.id] = line.outcome
    return outcomes, starts


def read_header(path: Path) -> Header:
    """Read the first line of a journal. Raises JournalError as ``read_journal`` does."""
    return _lines(path, 0)[0]


def _lines(path: Path, size: int | None = None) -> tuple[Header, list[bytes]]:
    """Return the header and the whole lines after it, of the journal's first ``size`` bytes."""
    try:
        with open_regular(path) as file:
            first = file.readline()
            rest = file.read(-1 if size is None else max(0, size - len(first)))
    except OSError as error:
        raise JournalError(f"cannot be read: {error.strerror}", file=path) from None
    return _decode_header(path, first), rest.split(b"\n")[:-1]


def _decode_header(path: Path, line: bytes) -> Header:
    try:
        version = decode_json(line, dict).get("msprobe_journal")
    except JsonError:
        version = None
    if not isinstance(version, int):
        raise JournalError("not a journal", file=path, remedy="pass a file written by --msprobe-journal")
    if version != VERSION:
        age, remedy = ("a newer", "update pytest-msprobe") if version > VERSION else ("an older", "use a new journal")
        raise JournalError(f"written by {age} version (format {version}, not {VERSION})", file=path, remedy=remedy)
    try:
        return decode_json(line, Header)
    except JsonError as error:
        raise JournalError(f"line 1 is not a header of format {version}: {error}", file=path) from None


def _decoded(path: Path, lines: list[bytes], kind: Any) -> Iterator[Any]:
    for number, line in enumerate(lines, start=2):
        try:
            # Lax, because JSON has no infinity: those numbers are strings.
            yield decode_json(line, kind, strict=False)
        except JsonError as error:
            raise JournalError(
                f"{path}: line {number} is damaged ({error}); delete that line to continue without it"
            ) from None


_encoder = msgspec.json.Encoder()


def _encode(line: Header | Entry | Start | MoreDumps | LeftOut) -> bytes:
    try:
        encoded = _encoder.encode(line)
    except UnicodeEncodeError:
        return _encoder.encode(as_json(msgspec.to_builtins(line))) + b"\n"
    # The encoder writes null for infinity and NaN; these two fields of an item are null of themselves.
    if isinstance(line, Entry) and encoded.count(b"null") > (line.result.skip is None) + (
        line.result.breakdown is None
    ):
        encoded = _encoder.encode(as_json(msgspec.to_builtins(line)))
    return encoded + b"\n"


class JournalWriter:
    """Appends to one journal, alone.

    Raises JournalError where the file cannot be written, is in use, is no journal, or is about something else than
    ``header`` says; with ``refuses_links`` also where it is a link.
    """

    def __init__(self, path: Path, header: Header, *, refuses_links: bool = False) -> None:
        self.path = path
        self._lines = AppendedLines(path, refuses_links=refuses_links)
        try:
            if self._lines.is_empty:
                self._lines.append(_encode(header))
            else:
                require_same(path, read_header(path), header)
                self._lines.drop_cut_line()
        except JournalError:
            self.close()
            raise

    def write(self, line: Entry | Start | MoreDumps | LeftOut) -> None:
        """Append one line. Raises JournalError where the disk does not take it."""
        self._lines.append(_encode(line))

    def close(self) -> None:
        """Close the file and give up its lock."""
        self._lines.close()


def require_same(path: Path, header: Header, expected: Header) -> None:
    """Raise JournalError, naming what differs, where a journal is about another check than the wanted one."""
    # Settings that say no more than the default are left out.
    facts = {
        name: (header.settings.get(name, "(default)"), expected.settings.get(name, "(default)"))
        for name in {**header.settings, **expected.settings}
    }
    facts["shard"] = (header.shard or "(all)", expected.shard or "(all)")
    for name, (before, now) in facts.items():
        if before != now:
            raise JournalError(
                f"was made with {name} {before}, this run has {now}", file=path, remedy="use another journal"
            )
    if sorted(header.dumps.values()) != sorted(expected.dumps.values()):
        raise JournalError(
            "was made from other dumps, or they have changed since", file=path, remedy="use another journal"
        )
