"""Runs of the command, each with a plan of raised calls, the number that is read from it, and the journal."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from msprobe_hooks.extensions.fix.run_plan import (
    AT_START,
    VARIABLE,
    Left,
    Plan,
    RunReport,
    left_in,
    lines_of,
    problems_of,
    was_seen,
)
from msprobe_hooks.json_decoding import JsonError, decode_json
from msprobe_hooks.recording.upcasts import Precision
from msprobe_hooks.regular_files import read_regular
from pytest_msprobe.containment.process import end_session
from pytest_msprobe.errors import CommandError, JournalError, ProgramError
from pytest_msprobe.extensions.bisect.search import WIDER, Fixes, left_text
from pytest_msprobe.journal import AppendedLines

_OUTPUT, _ERRORS = "stdout", "stderr"
_SHOWN = 12

# What is written with a point, an exponent or as no finite number: a count of steps is not the loss.
_FLOAT = re.compile(
    r"(?<![\w.])[-+]?(?:(?:\d+\.\d*|\.\d+)(?:e[-+]?\d+)?|\d+e[-+]?\d+|nan|inf(?:inity)?)(?!\w)", re.IGNORECASE
)

_SHOWN_OF_OUTPUT = 200


class Candidate(NamedTuple):
    """A call that another precision would change, and the process that makes it."""

    call: str
    process: str


@dataclass(frozen=True, slots=True)
class Run:
    """Outcome of one run: its number, the calls that each process listed, and what ran as it is in any of them."""

    number: float
    reports: Mapping[str, list[RunReport]]
    left: Sequence[Left]


@dataclass(frozen=True, slots=True)
class Command:
    """A command whose processes take a plan when they start, and its number.

    ``accepted`` are the exit statuses of a run that has a number, None where all are; ``timeout`` is in seconds;
    operators of the libraries in ``custom_op_namespaces`` are raised as well.
    """

    words: Sequence[str]
    to: Precision
    metric: Metric
    accepted: Collection[int] | None = (0,)
    timeout: float | None = None
    custom_op_namespaces: Sequence[str] = ()

    def list_calls(self) -> Run:
        """Run it as it is, and have its calls listed. Raises CommandError where it fails or no call is seen."""
        run = self._run(Plan(to=self.to, custom_op_namespaces=tuple(self.custom_op_namespaces)))
        if not any(run.reports.values()):
            left = left_text(run.left, (), self.custom_op_namespaces)
            raise ProgramError(
                f"nothing to raise: no call of the command computes in a lower precision than {self.to}",
                remedy="\n".join([WIDER[self.to], *left]),
            )
        return run

    def run_with(self, candidates: Sequence[Candidate], *, reports_stacks: bool = False) -> Run:
        """Run it with some calls raised. Raises CommandError where it fails."""
        raised: dict[str, list[str]] = {}
        for call, process in candidates:
            raised.setdefault(process, []).append(call)
        return self._run(
            Plan(
                to=self.to,
                raised=raised,
                reports_stacks=reports_stacks,
                custom_op_namespaces=tuple(self.custom_op_namespaces),
            )
        )

    def _run(self, plan: Plan) -> Run:
        with tempfile.TemporaryDirectory(prefix="msprobe-bisect-") as name:
            folder = Path(name)
            plan.write(folder)
            status = self._execute(folder)
            for problem in problems_of(folder):
                raise ProgramError(
                    "the calls of a process cannot be observed; install pytest-msprobe in the Python that the command "
                    f"runs:\n{problem.strip()}"
                )
            output = (folder / _OUTPUT).read_text(errors="replace")
            if self.accepted is not None and status not in self.accepted:
                written = (folder / _ERRORS).read_text(errors="replace").strip() or output.strip()
                end = "\n".join(written.splitlines()[-_SHOWN:])
                raise ProgramError(
                    f"the command failed: exit status {status}; use a command that succeeds, or pass --exit-status. "
                    f"Last lines of its output:\n{end}"
                )
            reports = lines_of(folder)
            if not reports:
                raise CommandError(f"{self.words[0]}: {_unseen(folder)}")
            return Run(self.metric.of(status, output), reports, left_in(folder))

    def _execute(self, folder: Path) -> int:
        """Run it, with what it writes in files, and return its exit status."""
        paths = [str(AT_START), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), VARIABLE: str(folder)}
        try:
            # Files, since what the command leaves running would keep a pipe open.
            with (folder / _OUTPUT).open("wb") as output, (folder / _ERRORS).open("wb") as errors:
                process = subprocess.Popen(
                    self.words,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                    start_new_session=True,
                )
        except OSError as error:
            raise CommandError(
                f"{self.words[0]}: cannot be run: {error.strerror or error}",
                remedy="pass the command as to a shell, such as -- python train.py",
            ) from None
        try:
            return process.wait(self.timeout)
        except subprocess.TimeoutExpired:
            raise CommandError(
                f"--timeout {self.timeout:g}: the command takes longer", remedy="pass a larger number"
            ) from None
        finally:
            end_session(process)


def _unseen(folder: Path) -> str:
    if was_seen(folder):
        return "no process of the command imported torch or MindSpore"
    return (
        "no Python was started that reads PYTHONPATH; pass a command that runs Python without -I, -E or -S, such as "
        "-- python train.py"
    )


def candidates_of(reports: Mapping[str, list[RunReport]]) -> list[Candidate]:
    """Return the calls that were listed, in the order of execution; those that processes share stand together."""
    first: dict[str, int] = {}
    for lines in reports.values():
        for place, line in enumerate(lines):
            first[line.call] = min(place, first.get(line.call, place))
    candidates = [Candidate(line.call, process) for process, lines in reports.items() for line in lines]
    return sorted(candidates, key=lambda candidate: (first[candidate.call], candidate.call))


def sharing(candidates: Sequence[Candidate], place: int) -> range:
    """Return the places of the calls that have the name of the one at ``place``, of all processes."""
    call = candidates[place].call
    start, stop = place, place + 1
    while start > 0 and candidates[start - 1].call == call:
        start -= 1
    while stop < len(candidates) and candidates[stop].call == call:
        stop += 1
    return range(start, stop)


def stacks_of(reports: Mapping[str, list[RunReport]]) -> Iterator[list[str]]:
    """Yield the stacks that processes reported of calls that were raised."""
    for lines in reports.values():
        for line in lines:
            yield line.stack


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """Subject of the runs; a bisection that goes on must have the same."""

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
    """State of a command, read from a file and appended to it; without a path it is kept in memory only.

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


def _require_same(path: Path, line: bytes, expected: Header) -> None:
    try:
        actual = decode_json(line, Header)
    except JsonError:
        raise JournalError(
            "not a journal of a bisection", file=path, remedy="pass a file that --journal wrote"
        ) from None
    for name in Header.__struct_fields__:
        before, now = (_spelled(getattr(header, name)) for header in (actual, expected))
        if before != now:
            raise JournalError(f"was made with {name} {before}, not {now}", file=path, remedy="use another journal")


def _spelled(value: object) -> str:
    return (", ".join(value) or "none") if isinstance(value, list) else str(value)


@dataclass(frozen=True, slots=True)
class Metric:
    """The exit status, or the last match of a pattern in standard output; without a pattern, of a float."""

    pattern: re.Pattern[str] | None = None
    is_exit_status: bool = False

    def __str__(self) -> str:
        if self.is_exit_status:
            return "the exit status"
        return "the last float of standard output" if self.pattern is None else f"the last {self.pattern.pattern!r}"

    def of(self, status: int, output: str) -> float:
        """Return the number of a run. Raises CommandError where it gave none."""
        if self.is_exit_status:
            return float(status)
        pattern = self.pattern or _FLOAT
        matches = list(pattern.finditer(output))
        if not matches:
            what = "prints no float" if self.pattern is None else f"prints nothing that matches {pattern.pattern!r}"
            raise CommandError(
                f"the command {what}; its output ends with {output[-_SHOWN_OF_OUTPUT:]!r}",
                remedy="pass --metric REGEX or --exit-status",
            )
        last = matches[-1]
        text = last[1] if pattern.groups else last[0]
        try:
            return float(text)
        except (TypeError, ValueError):
            raise CommandError(
                f"--metric {pattern.pattern!r} matches {last[0]!r}: {text!r} is not a number",
                remedy="put the number into the pattern's first group, such as 'loss=(\\S+)'",
            ) from None


def read_metric(pattern: str | None, *, is_exit_status: bool) -> Metric:
    """Return the metric of the command's options. Raises CommandError for a pattern that is none."""
    try:
        return Metric(None if pattern is None else re.compile(pattern, re.MULTILINE), is_exit_status)
    except re.error as error:
        raise CommandError(f"--metric {pattern!r}: not a regular expression: {error}") from None
