"""Follower of a spool folder: a run of pytest checks each complete step, until the stop file or a limit."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import msgspec

from msprobe_hooks.dump.recording_paths import DUMP_FILE
from msprobe_hooks.dump.writer import STOP_FILE, read_dropped, step_name
from msprobe_hooks.messages import counted, escaped_name
from pytest_msprobe.containment.process import end_session
from pytest_msprobe.errors import FolderError, OptionError, ProgramError
from pytest_msprobe.extensions.follow.folder import FAILED_FOLDER, OUTPUT_FILE, FailedLimits, SpoolFolder, new_file
from pytest_msprobe.journal import Journal, JournalWriter, MoreDumps, read_header, read_journal
from pytest_msprobe.reports.summary import in_words


class StepsJournal:
    """Takes over the journals of steps. Raises JournalError for a file that is no such journal, or in use.

    With ``refuses_links`` a link in its place is no such file.
    """

    def __init__(self, path: Path, *, refuses_links: bool = False) -> None:
        self.path = path
        self._refuses_links = refuses_links
        self._writer: JournalWriter | None = None
        if path.exists() and path.stat().st_size:
            read_header(path)

    def add(self, step: Journal, folder: Path) -> None:
        """Append the results of one step, whose dump will lie in ``folder``.

        The header is that of the first step, without its dump: its dumps are added as they come. Raises
        JournalError where the steps before were judged by other settings.
        """
        dump = folder.absolute() / DUMP_FILE
        if self._writer is None:
            self._writer = JournalWriter(
                self.path, msgspec.structs.replace(step.header, dumps={}), refuses_links=self._refuses_links
            )
        self._writer.write(MoreDumps({str(dump): digest for digest in step.header.dumps.values()}))
        for start in step.starts:
            self._writer.write(start)
        root = Path(step.header.root)
        file = dump.relative_to(root) if dump.is_relative_to(root) else dump
        for entry in step.entries.values():
            name = entry.id.partition("::")[2]
            self._writer.write(msgspec.structs.replace(entry, id=f"{file.as_posix()}::{name}"))

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()


# pytest's status where its options choose nothing of a step.
_NOTHING_CHOSEN = 5

_RUN_POLL_SECONDS = 0.2
_POLL_SECONDS = 0.5
_NAMES_SHOWN = 3
_OUTPUT_LINES_SHOWN = 15
# Options that are set for each step, or that would make a journal of a part of a step.
_OWN_OPTIONS = ("--msprobe-dump", "--msprobe-journal", "--msprobe-resume", "--msprobe-shard")


@dataclass(frozen=True, slots=True)
class Request:
    """Request of the user, as the command line names it; times are in seconds, None for no end."""

    folder: Path
    options: Sequence[str]
    journal: Path
    failed: FailedLimits
    timeout: float | None = None
    idle: float | None = None


@dataclass(slots=True)
class Tally:
    """Numbers of steps that passed, failed, had no record that the options choose, or failed and are no longer kept."""

    passed: int = 0
    unchosen: int = 0
    failed: int = 0
    gone: int = 0


def follow(request: Request, say: Callable[[str], None]) -> int:
    """Check steps until an end condition, and return the worst status of their runs: 1 where any failed, else 0.

    A folder that is not there is waited for. Raises FolderError for one that does not come in the time that is given,
    or that another process follows, OptionError for pytest's options, CommandError where
    pytest cannot check a step, JournalError where the journal cannot be written.
    """
    _require_free(request.options)
    with _signals() as caught:
        _wait_for_folder(request, caught, say)
    is_inside = request.journal.parent.resolve() == request.folder.resolve()
    if is_inside and request.journal.is_symlink():
        raise FolderError("is a link, which is not followed", file=request.journal, remedy="remove it")
    folder = SpoolFolder(request.folder, request.failed)
    tally = Tally()
    try:
        journal = StepsJournal(request.journal, refuses_links=is_inside)
        try:
            say(f"following {request.folder}: stop with Ctrl-C, or create the file {request.folder / STOP_FILE}")
            with _signals() as caught:
                reason = _Follower(request, folder, journal, tally, caught, say).run()
            say(f"stopped: {reason}")
        finally:
            journal.close()
            for line in _summary(request, folder, tally):
                say(line)
    finally:
        folder.close()
    return 1 if tally.failed else 0


def _require_free(options: Sequence[str]) -> None:
    """Raise OptionError where an option of pytest is one that is set for each step."""
    for word in options:
        if word.partition("=")[0] in _OWN_OPTIONS:
            raise OptionError(
                f"{word}: pytest-msprobe follow sets this option for each step",
                remedy="remove it; to name the journal of all steps, pass --journal FILE before --",
            )


def _wait_for_folder(request: Request, caught: Sequence[str], say: Callable[[str], None]) -> None:
    """Wait until the training has made the folder. Raises FolderError where it has not in the time that is given."""
    limit = min((seconds for seconds in (request.timeout, request.idle) if seconds is not None), default=None)
    if request.folder.exists():
        return
    say(f"waiting for {request.folder}: no such directory yet; the training makes it when it begins to record")
    began = time.monotonic()
    while not request.folder.exists():
        if caught or (limit is not None and time.monotonic() - began > limit):
            problem = f"no such directory, {caught[0] if caught else f'waited {limit:g} s'}"
            raise FolderError(problem, file=request.folder, remedy="pass the dump_path of a recording with spool_size")
        time.sleep(_POLL_SECONDS)


class _Follower:
    """The loop, and when it ends."""

    def __init__(
        self,
        request: Request,
        folder: SpoolFolder,
        journal: StepsJournal,
        tally: Tally,
        caught: Sequence[str],
        say: Callable[[str], None],
    ) -> None:
        self._request, self._folder, self._journal, self._tally = request, folder, journal, tally
        self._caught, self._say = caught, say
        self._began = self._last_step = time.monotonic()

    def run(self) -> str:
        """Check steps as they come; return why there are no more."""
        while True:
            # Asked before the folder is looked into: no step comes once it is there.
            is_closed = self._folder.is_closed_to_steps
            waiting = self._folder.waiting()
            if waiting and not self._end():
                self._check(waiting[0])
                self._last_step = time.monotonic()
                continue
            if reason := self._end() or self._idle():
                return reason
            if is_closed and not waiting:
                return f"found the file {STOP_FILE!r}, and no step is left"
            time.sleep(_POLL_SECONDS)

    def _end(self) -> str:
        """Return why to end at once, also in the middle of a step; an empty text to go on."""
        timeout = self._request.timeout
        if self._caught:
            return self._caught[0]
        if timeout is not None and time.monotonic() - self._began > timeout:
            return f"--timeout {timeout:g} s reached"
        return ""

    def _idle(self) -> str:
        idle = self._request.idle
        return f"no new step for {idle:g} s" if idle is not None and time.monotonic() - self._last_step > idle else ""

    def _check(self, step: Path) -> None:
        """Check a step, write down what came of it, and only then take it out of the folder."""
        journal, output = self._folder.own / "journal.jsonl", self._folder.own / OUTPUT_FILE
        began = time.monotonic()
        status = _run_step(step, self._request.options, journal, output, lambda: bool(self._end()))
        if status is None:
            return
        is_failed = status == 1
        place = self._folder.place_of_failed(step) if is_failed else step
        counts, names = "no record selected", ""
        if journal.exists():
            checked = read_journal(journal)
            self._journal.add(checked, place)
            if checked.entries:
                counts = in_words(Counter(entry.outcome for entry in checked.entries.values()))
                names = _failed_names(checked)
        line = f"{step_name(step)}: {counts} in {time.monotonic() - began:.1f} s"
        if is_failed:
            self._tally.failed += 1
            self._tally.gone += self._folder.keep(step, output)
            line += f"{names}; see {place / OUTPUT_FILE}"
        else:
            if status == _NOTHING_CHOSEN:
                self._tally.unchosen += 1
            else:
                self._tally.passed += 1
            self._folder.remove(step)
        self._say(line)


def _run_step(
    step: Path, options: Sequence[str], journal: Path, output: Path, is_ended: Callable[[], bool]
) -> int | None:
    """Check a step in a fresh process; return pytest's status, or None where the end came first.

    What it prints goes to ``output``, its journal to ``journal``; what was in these before is gone. Raises ProgramError
    where pytest does not get as far as a verdict.
    """
    journal.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    command += [f"--msprobe-dump={step / DUMP_FILE}", f"--msprobe-journal={journal}"]
    with new_file(output) as file:
        # A session of its own, so that Ctrl-C reaches only this process, which then ends all of it.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = _wait(process, is_ended)
        finally:
            end_session(process)
    if status not in (None, 0, 1, _NOTHING_CHOSEN):
        lines = output.read_text(errors="replace").strip().splitlines()[-_OUTPUT_LINES_SHOWN:]
        raise ProgramError(
            f"pytest could not check this step: exit status {status}; the step is kept. Last lines of its output:\n"
            + "\n".join(lines),
            file=step,
        )
    return status


def _wait(process: subprocess.Popen[bytes], is_ended: Callable[[], bool]) -> int | None:
    while not is_ended():
        with suppress(subprocess.TimeoutExpired):
            return process.wait(_RUN_POLL_SECONDS)
    return None


@contextmanager
def _signals() -> Iterator[list[str]]:
    """Yield a list that Ctrl-C and SIGTERM are noted in, so that none of them cuts a step in two."""
    caught: list[str] = []

    def note(number: int, frame: FrameType | None) -> None:
        caught.append("Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name)

    former = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _failed_names(checked: Journal) -> str:
    names = [entry.result.record for entry in checked.entries.values() if entry.result.verdict.outcome == "fail"]
    more = ", ..." if len(names) > _NAMES_SHOWN else ""
    return f" ({', '.join(names[:_NAMES_SHOWN])}{more})" if names else ""


def _summary(request: Request, folder: SpoolFolder, tally: Tally) -> Iterator[str]:
    """Yield the counts of steps, those that the training dropped, and where the results are."""
    unchosen = f"; without a selected record: {tally.unchosen}" if tally.unchosen else ""
    yield f"steps checked: {tally.passed + tally.failed}, {tally.passed} passed, {tally.failed} failed{unchosen}"
    if tally.failed:
        gone = f"; the oldest {tally.gone} were removed to stay within the limits" if tally.gone else ""
        yield f"failed steps: {request.folder / FAILED_FOLDER}{gone}"
    waiting = len(folder.waiting())
    if waiting:
        yield f"complete steps not checked yet: {waiting}"
    linked = folder.linked()
    if linked:
        yield f"steps left out, as they are links: {len(linked)}, first {linked[0]}"
    dropped, unreadable = read_dropped(request.folder)
    for reason, count in Counter(step.reason for step in dropped).items():
        yield f"steps dropped by the training: {count}, {reason}"
    if unreadable:
        more = f" (and {counted(len(unreadable) - 1, 'more line')})" if unreadable[1:] else ""
        yield f"not known of all steps whether the training dropped them: {escaped_name(unreadable[0])}{more}"
    if request.journal.exists():
        yield f"journal: {request.journal} (pytest-msprobe report {request.journal})"
