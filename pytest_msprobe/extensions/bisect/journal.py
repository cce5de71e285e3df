"""The journal of a bisection: one line for each finished run, so that another process can go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from msprobe_hooks.extensions.fix.run_plan import Left
from msprobe_hooks.json_decoding import JsonError, decode_json
from msprobe_hooks.regular_files import read_regular
from pytest_msprobe.errors import JournalError
from pytest_msprobe.extensions.bisect.command import Candidate
from pytest_msprobe.extensions.bisect.search import Fixes
from pytest_msprobe.journal.append_only_file import AppendedLines


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What the runs were of; a bisection that goes on must have the same."""

    msprobe_bisect: Literal[1] = 1
    command: str
    directory: str
    to: str
    metric: str
    custom_op_namespaces: list[str] = []


class Listed(msgspec.Struct, frozen=True, tag_field="line", tag="listed"):
    """The command as it is: its number, as Python spells it, and the calls that can be raised."""

    number: str
    candidates: list[Candidate]


class Measured(msgspec.Struct, frozen=True, tag_field="line", tag="run"):
    """The number of a run with some calls raised; the stack is known where that was a single one.

    ``left`` are APIs of which calls that were to be raised ran as they are.
    """

    fixes: Fixes
    number: str
    stack: list[str] = []
    left: list[Left] = []


# A union is no type to a type checker where one is asked for.
_Line: Any = Listed | Measured


class BisectionJournal:
    """What is known of a command, read from a file and appended to it; without a path it is kept in memory only.

    Raises JournalError where the file cannot be used, or is about something else than ``header`` says.
    """

    def __init__(self, path: Path | None, header: Header, *, is_resumed: bool = False) -> None:
        self.path = path
        self.listed: Listed | None = None
        self._measured: dict[Fixes, Measured] = {}
        if path is not None and is_resumed and not (path.exists() and path.stat().st_size):
            problem = "empty file" if path.exists() else "no such file"
            raise JournalError(problem, file=path, remedy="start with --journal FILE instead of --resume FILE")
        self._lines = AppendedLines(path) if path is not None else None
        try:
            if self._lines is not None:
                self._begin(self._lines, header, is_resumed=is_resumed)
        except JournalError:
            self.close()
            raise

    def measured(self, fixes: Fixes) -> Measured | None:
        """Return what is known of a run."""
        return self._measured.get(fixes)

    def note(self, line: Listed | Measured) -> None:
        """Keep what came of a run. Raises JournalError where it cannot be written."""
        self._take(line)
        if self._lines is not None:
            self._lines.append(msgspec.json.encode(line) + b"\n")

    def close(self) -> None:
        """Close the file."""
        if self._lines is not None:
            self._lines.close()

    def _begin(self, lines: AppendedLines, header: Header, *, is_resumed: bool) -> None:
        if lines.is_empty:
            lines.append(msgspec.json.encode(header) + b"\n")
            return
        if not is_resumed:
            raise JournalError("file exists", file=lines.path, remedy="continue it with --resume, or pass another file")
        # Before anything is cut off: the file may be somebody else's.
        _require_same(lines.path, read_regular(lines.path).partition(b"\n")[0], header)
        lines.drop_cut_line()
        _, *rest = read_regular(lines.path).splitlines()
        for number, line in enumerate(rest, start=2):
            try:
                noted = decode_json(line, _Line)
                float(noted.number)
            except ValueError as error:
                raise JournalError(
                    f"line {number} is damaged ({error})",
                    file=lines.path,
                    remedy="delete that line to continue without it",
                ) from None
            self._take(noted)

    def _take(self, line: Listed | Measured) -> None:
        if isinstance(line, Listed):
            self.listed = line
        else:
            self._measured[line.fixes] = line


def _require_same(path: Path, line: bytes, wanted: Header) -> None:
    try:
        found = decode_json(line, Header)
    except JsonError:
        raise JournalError(
            "not a journal of a bisection", file=path, remedy="pass a file that --journal wrote"
        ) from None
    for name in Header.__struct_fields__:
        before, now = (_spelled(getattr(header, name)) for header in (found, wanted))
        if before != now:
            raise JournalError(f"was made with {name} {before}, not {now}", file=path, remedy="use another journal")


def _spelled(value: object) -> str:
    return (", ".join(value) or "none") if isinstance(value, list) else str(value)
