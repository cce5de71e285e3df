"""The baseline file: a header line, one JSON line per record, and a last line that counts them.

A new file is written next to the old one and takes its place when it is complete, so that a full disk or a run that
was cut short leaves the old one as it was.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from msprobe_hooks.json_decoding import JsonError, decode_json
from msprobe_hooks.regular_files import read_regular
from pytest_msprobe.errors import BaselineError
from pytest_msprobe.modes.check.baselines.tensor_folder import RecordRow
from pytest_msprobe.results.result import Start, as_json
from pytest_msprobe.storage.files import atomic_write

VERSION = 1


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that a baseline was recorded with. ``dumps`` maps the fingerprint of each dump to where it was.

    Seed, data and dumps say which inputs its numbers belong to; ``starts`` what computed them, each different one once.
    ``level`` is the policy's, "by API" where each API has its own.
    """

    msprobe_baseline: int = VERSION
    written_by: str
    dumps: dict[str, str]
    seed: int
    real_data: str
    policy: str
    level: str = ""
    starts: list[Start]


def made_on(starts: Iterable[Start]) -> str:
    """Return in words what computed a run's numbers: its cards, then their math modes, each different one once."""
    starts = list(starts)
    described = [*(start.description for start in starts), *(start.modes_in_words for start in starts)]
    return "; ".join(dict.fromkeys(described))


class _Key(msgspec.Struct):
    record: str
    dump: str = ""
    outcome: str = ""
    tensors: str = ""


class _Footer(msgspec.Struct):
    records: int


@dataclass(frozen=True)
class Baseline:
    """A baseline that was read; ``rows`` are by dump and record, undecoded. ``header`` is None for a table.

    ``failed`` counts the records that were wrong where they were recorded, ``with_tensors`` those whose tensors were
    written as well. The lines of a file, and ``rows``::

        {"msprobe_baseline": 1, "dumps": {"<fingerprint>": "dump.json"}, ...}
        {"record": "Torch.add.0.forward", "dump": "<fingerprint>", "outcome": "pass", "outputs": [...], ...}
        {"records": 1}

        {("<fingerprint>", "Torch.add.0.forward"): b'{"record": ...}'}     of a table ("", "Torch.add.0.forward")
    """

    path: Path
    header: Header | None
    rows: Mapping[tuple[str, str], bytes]
    failed: int = 0
    with_tensors: int = 0

    def row(self, dump: str, record: str) -> RecordRow:
        """Return the row of a record of the dump with this fingerprint; one without outputs where there is none.

        Raises BaselineError where the row is damaged.
        """
        line = self.rows.get((dump if self.header else "", record))
        return RecordRow(record, dump) if line is None else self._decode(record, line)

    def _decode(self, record: str, line: bytes) -> RecordRow:
        try:
            # Lax, because JSON has no infinity: those numbers are strings.
            return msgspec.convert(decode_json(line), RecordRow, strict=False)
        except (msgspec.ValidationError, JsonError) as error:
            raise BaselineError(
                f"the row of {record!r} is damaged ({error})", file=self.path, remedy="record it again"
            ) from None


def read_baseline(path: Path) -> Baseline:
    """Read a baseline or one of msprobe's details tables.

    Raises BaselineError where the file is missing, foreign, of another format or not whole.
    """
    try:
        lines = read_regular(path).split(b"\n")
    except OSError as error:
        raise BaselineError(f"cannot be read: {error.strerror}", file=path) from None
    if not lines[0].startswith(b"{"):
        from pytest_msprobe.modes.check.baselines.details_table import read_details

        return Baseline(path, None, {("", row.record): encoded(row) for row in read_details(path)})
    header = _header(path, lines[0])
    rows: dict[tuple[str, str], bytes] = {}
    failed, with_tensors = set(), set()
    for number, line in enumerate(lines[1:-2], start=2):
        try:
            key = decode_json(line, _Key)
        except JsonError as error:
            raise BaselineError(
                f"line {number} is damaged ({error})", file=path, remedy="record the baseline again"
            ) from None
        rows[key.dump, key.record] = line
        if key.outcome == "fail":
            failed.add((key.dump, key.record))
        if key.tensors:
            with_tensors.add((key.dump, key.record))
    if len(lines) < 3 or lines[-1] or _count(lines[-2]) != len(lines) - 3:
        raise BaselineError("is cut short", file=path, remedy="record the baseline again")
    return Baseline(path, header, rows, len(failed), len(with_tensors))


def _header(path: Path, line: bytes) -> Header:
    try:
        version = decode_json(line, dict).get("msprobe_baseline")
    except JsonError:
        version = None
    if not isinstance(version, int):
        raise BaselineError(
            f"{path}: not a baseline; pass a file written by --msprobe-save-baseline, or the "
            "accuracy_checking_details table of msprobe"
        )
    if version != VERSION:
        when, remedy = ("a newer", "update pytest-msprobe") if version > VERSION else ("an older", "record it again")
        raise BaselineError(
            f"written by {when} version (format {version}, this one reads {VERSION})", file=path, remedy=remedy
        )
    try:
        return decode_json(line, Header)
    except JsonError as error:
        raise BaselineError(f"line 1 is not a header of format {version}: {error}", file=path) from None


def _count(line: bytes) -> int:
    try:
        return decode_json(line, _Footer).records
    except JsonError:
        return -1


def encoded(row: RecordRow) -> bytes:
    """Return a row as a line of JSON, without its newline."""
    return msgspec.json.encode(as_json(msgspec.to_builtins(row)))


class BaselineWriter:
    """Writes one baseline: rows as they come, then all of it at once.

    Raises BaselineError where the folder or the disk does not take it; the file that was there before is then as it
    was.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._rows = tempfile.TemporaryFile(dir=path.parent)  # noqa: SIM115 - open until the run ends
        except OSError as error:
            raise self._error(error) from None

    def add(self, row: RecordRow) -> None:
        """Keep a record's row."""
        try:
            self._rows.write(encoded(row) + b"\n")
        except OSError as error:
            raise self._error(error) from None
        self.count += 1

    def finish(self, header: Header) -> None:
        """Move the file into place."""
        try:
            with atomic_write(self.path) as part, part.open("wb") as file:
                file.write(msgspec.json.encode(as_json(msgspec.to_builtins(header))) + b"\n")
                self._rows.seek(0)
                shutil.copyfileobj(self._rows, file)
                file.write(msgspec.json.encode(_Footer(self.count)) + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise self._error(error) from None
        finally:
            self.close()

    def close(self) -> None:
        """Delete what was not put in place."""
        # What is still buffered for a full disk is lost on purpose.
        with contextlib.suppress(OSError):
            self._rows.close()

    def _error(self, error: OSError) -> BaselineError:
        return BaselineError(f"the baseline cannot be written: {error.strerror}", file=self.path)
